"""Peers: the named parties on the bus. A remote one speaks JSON-RPC over a connection."""

from __future__ import annotations

from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import structlog
from msgspec import UNSET, Raw

from busd.bus.address import check_address
from busd.bus.delivery import Delivery
from busd.bus.message import Ack, Message, read_ack
from busd.errors import Busy, NotInitialized, SenderRefused
from busd.rpc.endpoint import Asker, Endpoint
from busd.rpc.envelope import Envelope, LooseEnvelope, RequestId
from busd.wire.connection import Connection

if TYPE_CHECKING:
    from busd.bus.bus import Bus

log = structlog.get_logger("busd.bus")

BUSY_RETRY_SECONDS = 1.0
_MAX_SENDERS_REMEMBERED = 1_024
_connection_numbers = count(1)


class Peer(Protocol):
    """What the bus knows of a party: its name, and how to hand it a message."""

    name: str

    def hand_over(self, message: Message, frame: bytes, delivery: Delivery) -> None:
        """Take one message; its ack goes to `delivery`, at once or later."""


class RemotePeer(Endpoint[Message, Ack]):
    """A peer at the other end of a connection; nameless until it has initialized."""

    __slots__ = (
        "bus",
        "connection_id",
        "info",
        "max_unanswered",
        "name",
        "speaks_as",
        "subscriptions",
    )

    hot_method = "sendMessage"
    decode = staticmethod(msgspec.json.Decoder(Envelope[Message, Ack]).decode)

    def __init__(self, connection: Connection, bus: Bus) -> None:
        super().__init__(connection)
        self.bus = bus
        self.max_unanswered = bus.limits.max_unanswered
        self.connection_id = f"conn-{next(_connection_numbers)}"
        self.name = ""
        self.info: Raw | None = None
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
        self.bus.deliver(message, asker, request_id)

    def on_request(self, envelope: LooseEnvelope, asker: Asker) -> None:
        """Take any other request, unless too many answers are unread already."""
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

    def read_result(self, raw: Raw) -> Ack:
        return read_ack(raw)

    def on_end(self) -> None:
        """Hear that the peer will send no more: it gets no messages, but still its answers."""
        self.bus.leave(self, "ended")
        self.on_flushed_after_end()

    def on_flushed_after_end(self) -> None:
        if not self.bus.owes_answer(self):
            self.connection.close()

    def on_lost(self, reason: str) -> None:
        self.bus.leave(self, reason)

    def on_fault(self) -> None:
        log.exception("connection.failed", peer=self.name, remote=self.connection.remote)

    # From the bus

    def hand_over(self, message: Message, frame: bytes, delivery: Delivery) -> None:
        """Take one message, unless there is too much that this peer has not read or answered."""
        calls = self.calls
        if self.connection.is_clogged or len(calls) >= self.max_unanswered:
            delivery.settle_failed(self, "peer is busy", BUSY_RETRY_SECONDS)
            return
        # Recorded before it is sent: a quick peer answers before send() returns.
        calls[delivery.call_id] = delivery
        self.connection.send(frame)

    def take_name(self, name: str, info: Raw | None) -> None:
        """Become a member of the bus."""
        self.name = name
        self.info = info
        self.speaks_as.add(name)
        self.connection.deadline = inf
        self.connection.framer.allow(self.connection.limits.max_frame_bytes)

    def check_sender(self, message: Message) -> None:
        """Fill in a missing `from`, or find out whether this peer may speak as it."""
        if not self.is_initialized:
            raise NotInitialized("initialize first")
        if message.sender is UNSET:
            message.sender = self.name
            return
        check_address(message.sender)
        if message.sender != self.name and self.bus.policy == "strict":
            log.warning("message.refused", peer=self.name, sender=message.sender, rule="strict")
            raise SenderRefused(
                f"{self.name} may not speak as {message.sender}", sender=message.sender
            )
        if len(self.speaks_as) >= _MAX_SENDERS_REMEMBERED:
            self.speaks_as = {self.name}
        self.speaks_as.add(message.sender)
