"""A delivery: one accepted message on its way to everyone it is addressed to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, UnsetType

from busd.bus.message import NOTHING, Ack, Receipt
from busd.rpc.endpoint import Asker
from busd.rpc.envelope import RequestId, encode, read_error

if TYPE_CHECKING:
    from busd.bus.peer import Peer


class DeliveryLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long and how much a delivery may wait."""

    ack_seconds: float = 60.0
    max_unanswered: int = 1_024  # per peer
    max_subscriptions: int = 16_384  # per peer
    max_ack_bytes: int = 1024 * 1024  # of all payloads in one answer
    max_held_bytes: int = 64 * 1024 * 1024  # of all ack payloads waiting for slower peers


_OPENING_BRACE = ord("{")
_SHORT_CHARACTERS = 200  # of an ack's message, which need not be counted


class HeldBytes:
    """Counts the ack payloads that wait for the other acks of their delivery."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Delivery(msgspec.Struct, eq=False):
    """The ack of one message's one addressee, passed on as soon as it is in.

    A struct, because it is made for every message: 0.1 µs where a class takes 0.3.
    """

    call_id: int
    message_id: str
    asker: Asker
    request_id: RequestId
    deadline: float

    def settle(self, peer: Peer, ack: Ack) -> None:
        """Take the one ack of the one peer."""
        if ack.payload is not NOTHING and memoryview(ack.payload)[0] != _OPENING_BRACE:
            ack = _without_payload(ack)
        ack.client_id = peer.name
        self.asker.answer(self.request_id, Receipt(True, self.message_id, [ack]))

    def refuse(self, peer: Peer, error: Raw | UnsetType) -> None:
        """Take an error reply, or one that makes no sense, as a failed ack."""
        self.settle(peer, _failed_by(error))

    def settle_failed(self, peer: Peer, reason: str, retry_seconds: float | None = None) -> None:
        """Put a failed ack in place of one that will not come."""
        ack = Ack(False, reason)
        if retry_seconds is not None:
            ack.should_retry, ack.retry_seconds = True, retry_seconds
        self.settle(peer, ack)


class FanOut(Delivery, eq=False):
    """A delivery to several peers: gathers their acks within a budget of bytes."""

    missing: int
    held: HeldBytes
    limits: DeliveryLimits
    held_bytes: int = 0
    acks: list[Ack] = []

    def settle(self, peer: Peer, ack: Ack) -> None:
        if ack.payload is not NOTHING and memoryview(ack.payload)[0] != _OPENING_BRACE:
            ack = _without_payload(ack)
        ack.client_id = peer.name
        if ack.payload is not NOTHING or len(ack.message) > _SHORT_CHARACTERS:
            self._hold(ack)
        self.acks.append(ack)
        self.missing -= 1
        if not self.missing:
            self.held.count -= self.held_bytes
            self.asker.answer(self.request_id, Receipt(True, self.message_id, self.acks))

    def _hold(self, ack: Ack) -> None:
        """Keep the payload only within the limits: a slow peer must not pile up the others'."""
        size = memoryview(ack.payload).nbytes + len(ack.message)
        limits = self.limits
        if (
            self.held_bytes + size > limits.max_ack_bytes
            or self.held.count + size > limits.max_held_bytes
        ):
            ack.payload = NOTHING
            ack.message = "payload left out: the acks together are too large"
            return
        # A copy of the payload's own bytes lets go of the frame it came in.
        ack.payload = ack.payload.copy()
        self.held_bytes += size
        self.held.count += size


def _without_payload(ack: Ack) -> Ack:
    """Give what an ack means whose payload is no object: null is none, the rest makes no sense."""
    if bytes(ack.payload) != b"null":
        return _failed_by(UNSET)
    ack.payload = NOTHING
    return ack


def _failed_by(error: Raw | UnsetType) -> Ack:
    if error is UNSET:
        return Ack(False, "malformed answer: not the result of a processMessage")
    body = read_error(error)
    return Ack(False, body.message, Raw(encode({"error": body})))
