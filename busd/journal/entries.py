"""Results of queries of the activity log: attempts to send a message, and lines of the log."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import overload

import msgspec
from msgspec import UNSET, UnsetType, field

from busd.bus.record import Record, Status

# The status of an attempt is the first of these that one of its deliveries has.
_WORST_FIRST: tuple[Status, ...] = (
    "lost",
    "in flight",
    "dead",
    "purged",
    "expired",
    "failed",
    "kept",
    "no route",
    "ok",
)


class DeliveryRecord(msgspec.Struct, rename="camel", frozen=True):
    """The outcome at one addressee; `ms` is the time until it answered."""

    peer: str
    status: Status
    error: str | None
    process_start: str | None
    process_finish: str | None
    ms: float | None


class Attempt(msgspec.Struct, rename="camel", frozen=True):
    """One `sendMessage`, or what became of a message in its mailbox.

    `ms` is the time until its sender had the answer. For a message in a mailbox each attempt to
    deliver it is one of these; `error` says why it was kept again, or given up.
    """

    message_id: str
    rpc_id: str | None
    sender: str = field(name="from")
    to: str
    status: Status
    send_start: str
    send_finish: str | None
    ms: float | None
    payload: str | None
    deliveries: list[DeliveryRecord]
    error: str | UnsetType = UNSET  # if there is no addressee to whom it belongs


class LogEntry(msgspec.Struct, rename="camel", frozen=True):
    """One delivery as a line of the log; `id` increases from line to line."""

    id: int
    ts: str
    message_id: str
    rpc_id: str | None
    sender: str = field(name="from")
    to: str
    peer: str | None
    status: Status
    error: str | None
    ms: float | None
    payload: str | None


class Found(msgspec.Struct):
    """A delivery that was found in the log."""

    block: int
    key: int  # its position in the block
    wall_offset: float
    record: Record

    @property
    def id(self) -> int:
        return self.block + self.key

    @property
    def peer(self) -> str | None:
        return self.record.peer or None

    @property
    def error(self) -> str | None:
        return self.record.error or None

    @property
    def rpc_id(self) -> str | None:
        """The request id as text, as in the view."""
        value = self.record.rpc_id
        return None if value is None else str(value)

    @property
    def started(self) -> int:
        """The start in microseconds since 1970."""
        return self._microseconds(self.record.started)

    @property
    def ended(self) -> int | None:
        ended = self.record.ended
        return None if ended is None else self._microseconds(ended)

    def _microseconds(self, clock_time: float) -> int:
        return int((clock_time + self.wall_offset) * 1e6 + 0.5)


def attempt_of(found: list[Found]) -> Attempt:
    """Return the attempt that consists of these deliveries."""
    found.sort(key=lambda each: (not each.record.is_first, each.id))
    first = found[0]
    finish = max((each.ended or 0 for each in found if each.record.is_last), default=0) or None
    return Attempt(
        message_id=first.record.message_id,
        rpc_id=first.rpc_id,
        sender=first.record.sender,
        to=first.record.to,
        status=min((each.record.status for each in found), key=_WORST_FIRST.index),
        send_start=_time_text(first.started),
        send_finish=_time_text(finish),
        ms=_ms(first.started, finish),
        payload=first.record.payload or None,
        deliveries=[_delivery(each, each.peer) for each in found if each.peer],
        error=next((each.error for each in found if not each.peer and each.error), UNSET),
    )


def _delivery(found: Found, peer: str) -> DeliveryRecord:
    return DeliveryRecord(
        peer=peer,
        status=found.record.status,
        error=found.error,
        process_start=_time_text(found.started),
        process_finish=_time_text(found.ended),
        ms=_ms(found.started, found.ended),
    )


def entry_of(found: Found) -> LogEntry:
    """Return a delivery as a line of the log."""
    record = found.record
    return LogEntry(
        id=found.id,
        ts=_time_text(found.started),
        message_id=record.message_id,
        rpc_id=found.rpc_id,
        sender=record.sender,
        to=record.to,
        peer=found.peer,
        status=record.status,
        error=found.error,
        ms=_ms(found.started, found.ended),
        payload=record.payload or None,
    )


@overload
def _time_text(microseconds: int) -> str: ...


@overload
def _time_text(microseconds: int | None) -> str | None: ...


def _time_text(microseconds: int | None) -> str | None:
    if microseconds is None:
        return None
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:06d}Z"


def _ms(start: int, finish: int | None) -> float | None:
    return None if finish is None else (finish - start) / 1000
