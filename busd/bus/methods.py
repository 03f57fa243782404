"""The methods that peers call; each is named, typed and described once, here."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from busd import __version__
from busd.bus.address import check_name, check_pattern
from busd.bus.local import MAX_SHOWN
from busd.bus.message import Message, Payload, Receipt
from busd.bus.peer import Member, RemotePeer
from busd.errors import (
    AccessRefused,
    AlreadyInitialized,
    AuthenticationFailed,
    Busy,
    InvalidParams,
    KeyIsTaken,
    LoopDetected,
    MailFailed,
    MalformedAddress,
    MalformedPattern,
    NotInitialized,
    NotSubscribed,
    QuotaExceeded,
    RateLimited,
    TooManyFailures,
)
from busd.rpc.discover import describe_table
from busd.rpc.endpoint import Asker
from busd.rpc.envelope import ENVELOPE_BYTES, RequestId, encode
from busd.rpc.methods import DEFERRED, Methods
from busd.wire.credentials import with_certificate

methods: Methods[RemotePeer] = Methods()
_QUOTE = ord('"')
_MAX_DIGITS = 18
_MAX_CONNECTIONS, _MAX_PATTERNS = 1_000, 10_000  # in one answer of `getStatus`


class Nothing(msgspec.Struct):
    """No params."""


class Auth(msgspec.Struct):
    token: str = ""

    def __repr__(self) -> str:
        return "<Auth>"  # never the token


class WantedExtensions(msgspec.Struct, rename="camel"):
    """What a peer wants beyond v2 of the protocol."""

    delivery_attempt: bool = False


class InitializeParams(msgspec.Struct, rename="camel"):
    client_id: str
    client_info: Payload | UnsetType = UNSET
    auth: Auth | UnsetType = UNSET
    extensions: WantedExtensions | UnsetType = UNSET


class Named(msgspec.Struct):
    name: str = "busd"
    version: str = __version__


class Extensions(msgspec.Struct, rename="camel"):
    """What this bus does beyond v2 of the protocol."""

    ack_client_id: bool = True
    ack_retry: bool = True
    ack_outcome: bool = True
    undelivered: bool = True
    mail: bool = True
    delivery_attempt: bool = True
    message_id_optional: bool = True
    caused_by: bool = True
    discover: str = "rpc.discover"
    max_frame_bytes: int = 0
    ack_seconds: float = 0


class Capabilities(msgspec.Struct, rename="camel"):
    extensions: Extensions
    subscribe: bool = True
    process_message: bool = field(name="processMessage", default=True)
    addresses: tuple[str, ...] = ("tg:*", "agent:*", "system:*")


class Initialized(msgspec.Struct, rename="camel"):
    server_id: str
    server_info: Named
    capabilities: Capabilities


class SubscribeParams(msgspec.Struct):
    address: str


class UnsubscribeParams(msgspec.Struct, rename="camel"):
    address: str
    keep_mail: bool = False  # messages to it are kept until somebody subscribes again


class Done(msgspec.Struct):
    success: bool = True


class Pong(msgspec.Struct):
    timestamp: str


class ConnectionStatus(msgspec.Struct, rename="camel"):
    client_id: str
    connection_id: str
    subscriptions: list[str]
    client_info: Payload | None
    more_subscriptions: int | UnsetType = UNSET  # how many are left out
    known_by: str | UnsetType = UNSET  # what the peer is known by; shown to admins


class GetStatusParams(msgspec.Struct):
    after: str | UnsetType = UNSET  # the connectionId of the last one already seen


class BusStatus(msgspec.Struct, rename="camel"):
    server_id: str
    connections: list[ConnectionStatus]
    more_connections: int | UnsetType = UNSET  # how many did not fit: ask again with `after`


@methods.register(
    "initialize",
    InitializeParams,
    Initialized,
    errors=(
        AlreadyInitialized,
        MalformedAddress,
        InvalidParams,
        AccessRefused,
        AuthenticationFailed,
        TooManyFailures,
        QuotaExceeded,
    ),
)
def initialize(
    peer: RemotePeer, params: InitializeParams, asker: Asker, request_id: RequestId, /
) -> object:
    """Join the bus under a name; the first request on a connection."""
    if peer.is_initialized:
        raise AlreadyInitialized("already initialized")
    check_name(params.client_id)
    info = None if params.client_info is UNSET else read_client_info(params.client_info)
    bus = peer.bus
    token = "" if params.auth is UNSET else params.auth.token
    identity, rights = bus.authenticator.admit(with_certificate(peer.connection), token)
    decision = rights.may_be(params.client_id)
    if not decision.allowed:
        bus.log_refusal("peer.refused", params.client_id, decision.rule, identity=str(identity))
        reason = f"{identity} may not be {params.client_id}{rights.hint_for(params.client_id)}"
        raise AccessRefused(reason, rule=decision.rule)
    decision = bus.name_checks.decide(params.client_id, identity)
    if not decision.allowed:
        bus.log_refusal("peer.refused", params.client_id, decision.rule, identity=str(identity))
        raise AccessRefused(decision.reason, rule=decision.rule)
    peer.take_account(bus.accounts.find(identity), _size_of(info))
    peer.take_name(params.client_id, info, identity, rights)
    if params.extensions is not UNSET:
        peer.shows_attempts = params.extensions.delivery_attempt
    extensions = Extensions(
        max_frame_bytes=rights.max_frame_bytes(peer.connection.limits.max_frame_bytes),
        ack_seconds=bus.limits.ack_seconds,
        mail=bus.mailboxes is not None,
        delivery_attempt=bus.mailboxes is not None,
    )
    asker.answer(request_id, Initialized(bus.server_id, Named(), Capabilities(extensions)))
    bus.join(peer)  # after the answer: who watches may have a word for the new peer at once
    return DEFERRED


@methods.register(
    "subscribe",
    SubscribeParams,
    Done,
    errors=(MalformedPattern, AccessRefused, Busy, QuotaExceeded),
)
def subscribe(
    peer: RemotePeer, params: SubscribeParams, asker: Asker, request_id: RequestId, /
) -> Done:
    """Receive the messages to every address that a pattern matches."""
    check_pattern(params.address)
    decision = peer.rights.may_subscribe(params.address)
    if not decision.allowed and params.address != peer.name:
        peer.bus.log_refusal(
            "subscription.refused", peer.name, decision.rule, address=params.address
        )
        raise AccessRefused(decision.reason, rule=decision.rule, address=params.address)
    peer.bus.subscribe(peer, params.address)
    return Done()


@methods.register("unsubscribe", UnsubscribeParams, Done, errors=(NotSubscribed,))
def unsubscribe(
    peer: RemotePeer, params: UnsubscribeParams, asker: Asker, request_id: RequestId, /
) -> Done:
    """Undo a subscribe of exactly the same pattern."""
    peer.bus.unsubscribe(peer, params.address, keeps_mail=params.keep_mail)
    return Done()


@methods.register(
    "sendMessage",
    Message,
    Receipt,
    errors=(
        InvalidParams,
        MalformedAddress,
        AccessRefused,
        KeyIsTaken,
        LoopDetected,
        RateLimited,
        Busy,
        MailFailed,
        QuotaExceeded,
    ),
)
def send_message(
    peer: RemotePeer, params: Message, asker: Asker, request_id: RequestId, /
) -> object:
    """Deliver a message to everyone subscribed to its address and collect their acks."""
    peer.on_hot(params, asker, request_id)
    return DEFERRED


@methods.register("ping", Nothing, Pong)
def ping(peer: RemotePeer, params: Nothing, asker: Asker, request_id: RequestId, /) -> Pong:
    """Answer with the time of the bus."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return Pong(now.replace("+00:00", "Z"))


@methods.register("getStatus", GetStatusParams, BusStatus, errors=(InvalidParams,))
def get_status(
    peer: RemotePeer, params: GetStatusParams, asker: Asker, request_id: RequestId, /
) -> BusStatus:
    """List who is connected and what they subscribed to, as many as fit into one frame."""
    seen = 0 if params.after is UNSET else _number_of(params.after)
    members = peer.bus.peers
    room = asker.max_frame_bytes - ENVELOPE_BYTES
    shown: list[Any] = []  # each is a ConnectionStatus that is encoded already
    patterns = 0
    # Bounded, whatever there is: a page of the largest peers takes about as long as one of many.
    for member in islice(members.after(seen), _MAX_CONNECTIONS):
        patterns += min(len(member.subscriptions), MAX_SHOWN)
        if shown and patterns > _MAX_PATTERNS:
            break
        entry = encode(_status_of(member, is_for_admin=peer.rights.is_admin))
        if len(entry) > asker.max_frame_bytes / 2:
            entry = encode(_short_status_of(member))
        room -= len(entry) + 1
        if room < 0:
            break
        shown.append(Raw(entry))
        seen = member.number
    status = BusStatus(peer.bus.server_id, shown)
    if more := members.count_after(seen):
        status.more_connections = more
    return status


@methods.register("rpc.discover", Nothing, dict)
def discover(peer: RemotePeer, params: Nothing, asker: Asker, request_id: RequestId, /) -> Raw:
    """Describe all methods as an OpenRPC document."""
    return describe_table("busd", __version__, peer.bus.methods, always=(NotInitialized,))


def _number_of(connection_id: str) -> int:
    """Return the number in a connection id; they are given out in ascending order."""
    number = connection_id.rpartition("-")[2]
    if not (number.isascii() and number.isdigit() and len(number) < _MAX_DIGITS):
        raise InvalidParams("getStatus: after must be a connectionId", member="after")
    return int(number)


def _status_of(peer: Member, *, is_for_admin: bool) -> ConnectionStatus:
    # Some, if there are many: to sort all 16,384 for the first 1,000 takes 5 ms.
    shown = sorted(islice(peer.subscriptions, MAX_SHOWN))
    status = ConnectionStatus(peer.name, peer.connection_id, shown, peer.info)
    if len(peer.subscriptions) > MAX_SHOWN:
        status.more_subscriptions = len(peer.subscriptions) - MAX_SHOWN
    if is_for_admin and isinstance(peer, RemotePeer):
        status.known_by = peer.identity.known_by
    return status


def _short_status_of(peer: Member) -> ConnectionStatus:
    """Return only what names a peer whose whole status would fill a frame."""
    status = ConnectionStatus(peer.name, peer.connection_id, [], None)
    status.more_subscriptions = len(peer.subscriptions)
    return status


def read_client_info(raw: Raw) -> Raw:
    """Return what a peer says of itself, with a `name` and a `version` that are strings.

    Existing peers read `getStatus` strictly: one peer without them must not break it for all.
    """
    try:
        members = msgspec.json.decode(raw, type=dict[str, Raw])
    except msgspec.ValidationError:
        reason = "initialize: clientInfo must be an object"
        raise InvalidParams(reason, member="clientInfo") from None
    missing = {
        name: _as_string(members.get(name, Raw(b"null")))
        for name in ("name", "version")
        if memoryview(members.get(name, Raw(b"null")))[0] != _QUOTE
    }
    return Raw(encode(members | missing)) if missing else raw.copy()


def _size_of(raw: Raw | None) -> int:
    return 0 if raw is None else memoryview(raw).nbytes


def _as_string(value: Raw) -> str:
    text = bytes(value).decode()
    return "" if text == "null" else text
