"""What the bus records of each delivery, and the interface of what it hands the records to."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec
from msgspec import Raw

MAX_ERROR_CHARACTERS = 1_000

# 'in flight': not answered yet. 'lost': the outcome will never be known, because the daemon was
# killed or because the record of the outcome was dropped.
# 'kept', 'expired', 'dead' and 'purged' are records of a mailbox, not of an addressee.
Status = Literal[
    "ok", "failed", "no route", "kept", "expired", "dead", "purged", "in flight", "lost"
]


class Record(msgspec.Struct, array_like=True, gc=False):
    """One delivery: a message on its way to one addressee.

    Times are in seconds on the clock of the bus. `call` and `started` together identify the
    `sendMessage`: they are the same in the records of all its addressees.
    """

    call: int  # number of the sendMessage, increasing
    message_id: str
    rpc_id: int | float | str | None  # the sender's id of its request
    sender: str
    to: str
    peer: str  # clientId of the addressee; "" if there is none
    started: float  # accepted and handed over
    ended: float | None  # answered
    status: Status = "ok"
    error: str = ""  # up to MAX_ERROR_CHARACTERS
    is_first: bool = True  # in one record per message, which has the payload
    is_last: bool = True  # in the record whose answer completed the sendMessage
    payload: str = ""  # what `Recorder.keep` returned


class Recorder(Protocol):
    """What the bus hands its records to. No method may block or raise."""

    @property
    def keeps_payloads(self) -> bool:
        """Whether `keep` returns anything but the empty string."""

    def keep(self, payload: Raw) -> str:
        """Return the part of a payload that is to be recorded."""

    def add(self, record: Record, /) -> None:
        """Record a delivery that has ended."""
