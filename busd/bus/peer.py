"""Peers: the named parties on the bus. A remote one speaks JSON-RPC over a connection."""

from __future__ import annotations

from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import structlog
from msgspec import UNSET, Raw

from busd.bus.access import Identity, Rights
from busd.bus.address import check_address
from busd.bus.awaited import Entry
from busd.bus.delivery import Delivery
from busd.bus.guard import Guard
from busd.bus.message import Message, Outcome, PeerAck, longest_short_receipt, read_ack
from busd.bus.quota import Account, Allowance
from busd.errors import AccessRefused, Busy, NotInitialized, RequestError
from busd.rpc.endpoint import Asker, Endpoint
from busd.rpc.envelope import Envelope, LooseEnvelope, RequestId
from busd.wire.connection import Connection
from busd.wire.interfaces import NO_METER

if TYPE_CHECKING:
    from busd.bus.bus import Bus

log = structlog.get_logger("busd.bus")

BUSY_RETRY_SECONDS = 1.0
_MAX_SENDERS_REMEMBERED = 1_024
connection_numbers = count(1)


class Peer(Protocol):
    """What a route leads to: it has a name, and messages are handed to it."""

    name: str
    bus: Bus
    subscriptions: set[str]
    shows_attempts: bool  # it gets a `HandedMessage` if a message may have been handed over before

    def hand_over(self, message: Message, frame: bytes, delivery: Delivery) -> None:
        """Send one message to this peer; its ack goes to `delivery`, at once or later."""


class Member(Peer, Protocol):
    """What the bus knows of a peer that has joined: also what it owes and subscribed to."""

    number: int  # of its connection; they are given out in ascending order
    connection_id: str
    info: Raw | None
    calls: dict[int, Any]  # call id -> Delivery
    awaited: Entry | None  # where the bus looks for acks that are overdue
    wildcards: int  # how many of them are no addresses
    globs: int  # how many of them are neither addresses nor prefixes
    allowance: Allowance
    account: Account


class RemotePeer(Endpoint[Message, PeerAck]):
    """A peer at the other end of a connection; nameless until it has initialized."""

    __slots__ = (
        "account",
        "allowance",
        "awaited",
        "bus",
        "connection_id",
        "globs",
        "guard",
        "identity",
        "info",
        "max_unanswered",
        "name",
        "number",
        "rights",
        "shows_attempts",
        "speaks_as",
        "subscriptions",
        "wildcards",
    )

    hot_method = "sendMessage"
    decode = staticmethod(msgspec.json.Decoder(Envelope[Message, PeerAck]).decode)

    def __init__(self, connection: Connection, bus: Bus, account: Account) -> None:
        super().__init__(connection)
        self.account = account
        self.allowance = Allowance(account)
        account.add_connection(1)
        connection.meter = account
        self.bus = bus
        self.max_unanswered = bus.limits.max_unanswered
        self.max_frame_bytes = connection.limits.max_frame_bytes
        self.number = next(connection_numbers)
        self.connection_id = f"conn-{self.number}"
        self.awaited: Entry | None = None
        self.globs = self.wildcards = 0
        self.name = ""
        self.shows_attempts = False  # it asked for the number of an attempt that is a repetition
        self.info: Raw | None = None
        self.identity = Identity()
        self.rights = Rights(())
        self.guard: Guard | None = None  # most may send anything anywhere: nothing to check
        self.subscriptions: set[str] = set()
        # Senders that were checked; looked up for every message instead of checking again.
        self.speaks_as: set[Any] = set()

    @property
    def is_initialized(self) -> bool:
        return bool(self.name)

    # From the wire

    def on_hot(self, message: Message, asker: Asker, request_id: RequestId) -> None:
        """`sendMessage`: carry a message to everyone it is addressed to."""
        if message.sender not in self.speaks_as:
            self.check_sender(message)
        if self.guard is not None:
            self.guard.check(message, self)
        self.bus.deliver(message, asker, request_id, self.allowance)

    def on_request(self, envelope: LooseEnvelope, asker: Asker) -> None:
        """Handle any other request, unless too many answers are unread already."""
        connection = self.connection
        if asker is self and connection.is_clogged:
            if envelope.wants_answer:
                request_id = None if envelope.id is UNSET else envelope.id
                self.fail(request_id, Busy("read the answers first", retrySeconds=1))
            return
        self.bus.dispatch(self, envelope, asker)
        if asker is self:
            # At once: a chunk has room for 5,000 requests, and an answer may have a MiB.
            connection.flush()

    def read_result(self, raw: Raw) -> PeerAck:
        return read_ack(raw)

    def shortest_answer_bytes(self, frame: bytes) -> int:
        """Return the size of the receipt of a message: once it is accepted, it gets no error."""
        return len(longest_short_receipt(frame))

    def on_end(self) -> None:
        """Handle the end of the stream: the peer gets no messages, but still its answers."""
        self.bus.leave(self, "ended")
        self.bus.close_soon(self)

    def on_flushed_after_end(self) -> None:
        if not self.connection.is_closed and not self.bus.owes_answer(self):
            self.connection.close()

    def on_lost(self, reason: str) -> None:
        self.bus.leave(self, reason)

    def on_fault(self) -> None:
        log.exception("connection.failed", peer=self.name, remote=self.connection.remote)

    def on_refused(self, fault: RequestError) -> None:
        self.bus.tally.refused[str(fault.data["rule"])] += 1

    # From the bus

    def hand_over(self, message: Message, frame: bytes, delivery: Delivery) -> None:
        """Send one message, unless there is too much that this peer has not read or answered."""
        calls, connection = self.calls, self.connection
        if connection.is_clogged or len(calls) >= self.max_unanswered:
            delivery.settle_failed(self, Outcome.BUSY, BUSY_RETRY_SECONDS)
            return
        if len(frame) > self.max_frame_bytes:
            limit = f"the peer takes {self.max_frame_bytes} bytes"
            delivery.settle_failed(self, Outcome.TOO_LARGE, detail=limit)
            return
        # Recorded before it is sent: a quick peer answers before send() returns.
        calls[delivery.call_id] = delivery
        if self.awaited is None:
            self.bus.await_acks(self, delivery.started)
        if self.out:
            self.out.append(frame)
        else:
            connection.send(frame)

    def take_account(self, account: Account, info_bytes: int) -> None:
        """Move this connection to an identity's account; raise Busy if that is full."""
        old, connection = self.account, self.connection
        if account is not old:
            account.check_connection()
            old.add_connection(-1)
            old.add_unread(-connection.unread_bytes)
            old.add_held(-connection.held_bytes)
            account.add_connection(1)
            account.add_unread(connection.unread_bytes)
            account.add_held(connection.held_bytes)
            self.account = connection.meter = account
            self.allowance = Allowance(account)  # nothing was sent yet
            self.bus.accounts.forget(old)
        account.check_subscription(is_glob=False)
        account.add_connection(0, info_bytes)

    def release(self) -> None:
        """Release what the connection has used; its patterns are counted apart."""
        self.account.close_allowance(self.allowance)
        connection = self.connection
        size = 0 if self.info is None else memoryview(self.info).nbytes
        self.account.add_connection(-1, -size)
        self.account.add_unread(-connection.unread_bytes)
        self.account.add_held(-connection.held_bytes)
        connection.meter = NO_METER  # what it has said before is still worked off

    def take_name(self, name: str, info: Raw | None, identity: Identity, rights: Rights) -> None:
        """Become a member of the bus."""
        self.name = self.allowance.sender = name
        self.identity = identity
        self.info = info
        self.connection.deadline = inf
        # Announced once, so it stays, whatever a reload makes of the limit.
        self.max_frame_bytes = rights.max_frame_bytes(self.connection.limits.max_frame_bytes)
        self.take_rights(rights)

    def take_rights(self, rights: Rights) -> None:
        """Replace the rights of this peer."""
        self.rights = rights
        is_guarded = rights.limits_messages or not rights.speaks_as_anybody
        self.guard = Guard(rights, self.bus.clock, self.bus.type_checks) if is_guarded else None
        self.speaks_as = {self.name}
        limit = rights.max_frame_bytes(self.connection.limits.max_frame_bytes)
        self.connection.framer.allow(limit)

    def check_sender(self, message: Message) -> None:
        """Fill in a missing `from`, or find out whether this peer may speak as it."""
        if not self.is_initialized:
            raise NotInitialized("initialize first")
        if message.sender is UNSET or not message.sender:
            message.sender = self.name
            return
        self.check_speaks_as(message.sender)

    def check_speaks_as(self, address: str, where: str = "") -> None:
        """Raise AccessRefused unless this peer may speak as an address; `where` says it does."""
        if address in self.speaks_as:
            return
        check_address(address)
        decision = self.rights.may_speak_as(self.name, address)
        if not decision.allowed:
            self.bus.log_refusal("message.refused", self.name, decision.rule, sender=address)
            reason = f"{where}{self.name} may not speak as {address}: {decision.reason}"
            raise AccessRefused(reason, rule=decision.rule, sender=address)
        if len(self.speaks_as) >= _MAX_SENDERS_REMEMBERED:
            self.speaks_as = {self.name}
        self.speaks_as.add(address)
