"""The methods that peers call; each is named, typed and described once, here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from busd import __version__
from busd.bus.address import check_address, check_pattern
from busd.bus.local import MAX_SHOWN
from busd.bus.message import Message, Payload, Receipt
from busd.bus.peer import Member, RemotePeer
from busd.errors import (
    AccessRefused,
    AlreadyInitialized,
    AuthenticationFailed,
    Busy,
    InvalidParams,
    MalformedAddress,
    MalformedPattern,
    NotInitialized,
    NotSubscribed,
    RateLimited,
    TooManyFailures,
)
from busd.rpc.discover import describe_methods
from busd.rpc.endpoint import Asker
from busd.rpc.envelope import RequestId
from busd.rpc.methods import DEFERRED, Methods
from busd.wire.credentials import with_certificate

methods: Methods[RemotePeer] = Methods()


class Nothing(msgspec.Struct):
    """No params."""


class Auth(msgspec.Struct):
    token: str = ""

    def __repr__(self) -> str:
        return "<Auth>"  # never the token


class InitializeParams(msgspec.Struct, rename="camel"):
    client_id: str
    client_info: Payload | UnsetType = UNSET
    auth: Auth | UnsetType = UNSET


class Named(msgspec.Struct):
    name: str = "busd"
    version: str = __version__


class Extensions(msgspec.Struct, rename="camel"):
    """What this bus does beyond v2 of the protocol."""

    ack_client_id: bool = True
    ack_retry: bool = True
    undelivered: bool = True
    message_id_optional: bool = True
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


class Done(msgspec.Struct):
    success: bool = True


class Pong(msgspec.Struct):
    timestamp: str


class ConnectionStatus(msgspec.Struct, rename="camel"):
    client_id: str
    connection_id: str
    subscriptions: list[str]
    client_info: Payload
    more_subscriptions: int | UnsetType = UNSET  # how many of a plugin's are left out


class Status(msgspec.Struct, rename="camel"):
    server_id: str
    connections: list[ConnectionStatus]


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
    ),
)
def initialize(
    peer: RemotePeer, params: InitializeParams, asker: Asker, request_id: RequestId, /
) -> object:
    """Join the bus under a name; the first request on a connection."""
    if peer.is_initialized:
        raise AlreadyInitialized("already initialized")
    check_address(params.client_id)
    info = None if params.client_info is UNSET else params.client_info.copy()
    if info is not None and bytes(info)[:1] != b"{":
        raise InvalidParams("initialize: clientInfo must be an object", member="clientInfo")
    bus = peer.bus
    token = "" if params.auth is UNSET else params.auth.token
    identity, rights = bus.authenticator.admit(with_certificate(peer.connection), token)
    decision = rights.may_be(params.client_id)
    if not decision.allowed:
        bus.log_refusal("peer.refused", params.client_id, decision.rule, identity=str(identity))
        raise AccessRefused(f"{identity} may not be {params.client_id}", rule=decision.rule)
    decision = bus.name_checks.decide(params.client_id, identity)
    if not decision.allowed:
        bus.log_refusal("peer.refused", params.client_id, decision.rule, identity=str(identity))
        raise AccessRefused(decision.reason, rule=decision.rule)
    peer.take_name(params.client_id, info, identity, rights)
    extensions = Extensions(
        max_frame_bytes=rights.max_frame_bytes(peer.connection.limits.max_frame_bytes),
        ack_seconds=bus.limits.ack_seconds,
    )
    asker.answer(request_id, Initialized(bus.server_id, Named(), Capabilities(extensions)))
    bus.join(peer)  # after the answer: who watches may have a word for the new peer at once
    return DEFERRED


@methods.register(
    "subscribe", SubscribeParams, Done, errors=(MalformedPattern, AccessRefused, Busy)
)
def subscribe(
    peer: RemotePeer, params: SubscribeParams, asker: Asker, request_id: RequestId, /
) -> Done:
    """Get the messages to every address that a pattern matches."""
    check_pattern(params.address)
    decision = peer.rights.may_subscribe(params.address)
    if not decision.allowed and params.address != peer.name:
        peer.bus.log_refusal(
            "subscription.refused", peer.name, decision.rule, address=params.address
        )
        raise AccessRefused(decision.reason, rule=decision.rule, address=params.address)
    peer.bus.subscribe(peer, params.address)
    return Done()


@methods.register("unsubscribe", SubscribeParams, Done, errors=(NotSubscribed,))
def unsubscribe(
    peer: RemotePeer, params: SubscribeParams, asker: Asker, request_id: RequestId, /
) -> Done:
    """Undo a subscribe of exactly the same pattern."""
    peer.bus.unsubscribe(peer, params.address)
    return Done()


@methods.register(
    "sendMessage",
    Message,
    Receipt,
    errors=(InvalidParams, MalformedAddress, AccessRefused, RateLimited, Busy),
)
def send_message(
    peer: RemotePeer, params: Message, asker: Asker, request_id: RequestId, /
) -> object:
    """Carry a message to everyone subscribed to its address and gather their acks."""
    peer.on_hot(params, asker, request_id)
    return DEFERRED


@methods.register("ping", Nothing, Pong)
def ping(peer: RemotePeer, params: Nothing, asker: Asker, request_id: RequestId, /) -> Pong:
    """Answer with the time of the bus."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return Pong(now.replace("+00:00", "Z"))


@methods.register("getStatus", Nothing, Status)
def get_status(peer: RemotePeer, params: Nothing, asker: Asker, request_id: RequestId, /) -> Status:
    """Say who is connected and what they subscribed to."""
    return Status(peer.bus.server_id, [_status_of(each) for each in peer.bus.peers])


@methods.register("rpc.discover", Nothing, dict)
def discover(
    peer: RemotePeer, params: Nothing, asker: Asker, request_id: RequestId, /
) -> dict[str, Any]:
    """Describe all methods as an OpenRPC document."""
    described = list(peer.bus.methods.described.values())
    return describe_methods("busd", __version__, described, always=(NotInitialized,))


def _status_of(peer: Member) -> ConnectionStatus:
    subscriptions = sorted(peer.subscriptions)
    status = ConnectionStatus(peer.name, peer.connection_id, subscriptions, peer.info or Raw(b"{}"))
    if len(subscriptions) > MAX_SHOWN and not isinstance(peer, RemotePeer):
        status.subscriptions = subscriptions[:MAX_SHOWN]
        status.more_subscriptions = len(subscriptions) - MAX_SHOWN
    return status
