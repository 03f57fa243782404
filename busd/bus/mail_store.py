"""The contract of what stores mail: mailboxes that survive a restart, dead letters, keys.

The bus submits operations and gets one outcome for each, in a callback on its own thread:

    store.submit(Keep(mail), done)  # later: done(Kept(...)) or done(BoxFull(...))

An outcome is a value: what the operation returns (`Operation[Kept]` returns `Kept`), or a
`MailFailure`. A change is durable when its outcome arrives; until then it may or may not survive a
crash. Operations take effect in the order of their submission, and each sees those before it.

All times are the time of day in seconds since 1970, and are part of the operations: a store has no
clock. So a clock that jumps forward by a day expires the mail that had less than a day left,
because each `Expire` compares `expires_at` with one `now`; it goes to the dead letters, from where
it can be revived. The jump also ends the deduplication of mail that is done, but not of mail that
waits. A clock that jumps back delays expiry by the jump.

Whoever delivers from a mailbox claims it first and then holds a `Box`. Each claim has a fencing
number, greater than those before, even over a restart; operations on a `Box` whose claim has ended
fail with `NotHeld` and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from busd.bus.mail import (
    Box,
    BoxSummary,
    DeadFilter,
    DeadLetter,
    Kept,
    KnownAddress,
    Mail,
    MailFailure,
    Totals,
)

R = TypeVar("R")
Done = Callable[[R | MailFailure], None]


class Operation(msgspec.Struct, Generic[R]):
    """Something to submit; `R` is what it returns unless it fails."""


class Keep(Operation[Kept]):
    """Append mail to its mailbox.

    If the sender used the same key within the deduplication window, or for mail that still waits,
    nothing is kept, and the outcome describes the first mail. `mail.attempts` is 1 for mail that
    will be handed over as soon as it is kept.

    Fails with KeyReused, BoxFull, TooLarge, StoreBusy.
    """

    mail: Mail


class Finish(Operation[None]):
    """Record the outcome of a send that had a key; the mail stays as it is.

    Without effect if the send had no key or the key is forgotten.
    """

    id: int
    outcome: bytes


class ForgetKeys(Operation[int]):
    """Forget the keys of mail that was kept before a time, and the oldest over the limit.

    Those of mail that still waits are forgotten only over the limit.
    Returns their number.
    """

    before: float


class Claim(Operation[Box]):
    """Become the sole reader of a mailbox, empty or not.

    A second claim of the same holder replaces its first. A claim ends when it is released, when
    the holder forfeits all of its claims, or with the process of the holder.

    Fails with Held.
    """

    address: str
    holder: str


class Release(Operation[None]):
    """End a claim. Without effect if it has ended."""

    box: Box


class Forfeit(Operation[int]):
    """End all claims of a holder; return their number."""

    holder: str


class Read(Operation[list[Mail]]):
    """Return mail after an id, in the order kept, postponed mail included.

    Returns at most `limit`, and after the first one no more than fits into `max_bytes` of
    payloads. Fails with NotHeld.
    """

    box: Box
    after: int = 0
    limit: int = 100
    max_bytes: int = 4 * 1024 * 1024


class NoteAttempt(Operation[int]):
    """Add one to the attempts on record; return their number.

    To be done before an attempt that is not on record is made: after a crash, mail without an
    attempt on record was never handed over. Fails with NotHeld, NotFound.
    """

    box: Box
    id: int


class Peek(Operation[list[Mail]]):
    """Return mail as Read does, without a claim: for those who only look."""

    address: str
    after: int = 0
    limit: int = 100
    max_bytes: int = 4 * 1024 * 1024


class Settle(Operation[int]):
    """Delete all mail up to and including an id; return the number. Fails with NotHeld."""

    box: Box
    up_to: int


class SettleOne(Operation[None]):
    """Delete one mail, in any order, and record its outcome as Finish does.

    Without effect if it is gone, but for the outcome. Fails with NotHeld.
    """

    box: Box
    id: int
    outcome: bytes


class Postpone(Operation[None]):
    """Set the earliest time of the next attempt, and why. Fails with NotHeld, NotFound."""

    box: Box
    id: int
    not_before: float
    reason: str


class Bury(Operation[None]):
    """Move one mail to the dead letters, and record its outcome as Finish does.

    Fails with NotHeld, NotFound.
    """

    box: Box
    id: int
    reason: str
    now: float
    outcome: bytes = b""  # b"": none


class Purge(Operation[list[Mail]]):
    """Delete mail of a mailbox, claimed or not.

    Deletes and returns at most `limit`, in the order kept and without payloads; call again if it
    returned that many.
    """

    address: str
    limit: int = 1000


class Expire(Operation[list[Mail]]):
    """Move mail with `expires_at` <= `now` to the dead letters, claimed or not.

    Returns at most `limit`, earliest expiry first and without payloads; call again if it returned
    that many. `outcome` is recorded for each as Finish does.
    """

    now: float
    limit: int = 1000
    outcome: bytes = b""  # b"": none


class Survey(Operation[list[BoxSummary]]):
    """Return the addresses that have mail or dead letters, in alphabetical order."""

    prefix: str = ""
    after: str = ""  # the last address of the previous page
    limit: int = 1000


class ListDead(Operation[list[DeadLetter]]):
    """Return dead letters in the order of their ids, after an id."""

    filter: DeadFilter = DeadFilter()
    after: int = 0
    limit: int = 100
    max_bytes: int = 4 * 1024 * 1024


class Revive(Operation[Kept]):
    """Move a dead letter to the end of its mailbox, with a new id.

    If attempts are on record, one remains: whoever gets it may have had it before.

    Its key, if it is not forgotten, then belongs to the new id, without an outcome.
    Fails with NotFound, BoxFull.
    """

    id: int
    now: float  # becomes kept_at
    expires_at: float


class DropDead(Operation[int]):
    """Delete dead letters: those of the ids if given, otherwise those of the filter.

    Returns the number.
    """

    ids: list[int] | None = None
    filter: DeadFilter = DeadFilter()


class Remember(Operation[None]):
    """Record that a peer answered for an address or a pattern."""

    address: str
    now: float
    is_first_hand: bool = True


class ForgetAddress(Operation[None]):
    """Forget that a peer answered for an address or a pattern."""

    address: str


class Known(Operation[list[KnownAddress]]):
    """Return the addresses and patterns remembered at or after a time, in alphabetical order."""

    since: float = 0.0


class MailStore(Protocol):
    """What stores mail. No method blocks or raises, except `close`."""

    @property
    def waiting(self) -> int:
        """The number of operations that have no outcome yet."""

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt to write failed; it recovers by itself."""

    @property
    def totals(self) -> Totals:
        """What there was at the last commit."""

    def submit(self, operation: Operation[R], done: Done[R], /) -> None:
        """Execute an operation; `done` is called with its outcome, exactly once.

        It is called on the thread of the bus, after `submit` has returned, and in the order of
        submission. The exception is StoreBusy, for which `done` is called before `submit` returns.
        """

    def close(self, seconds: float) -> bool:
        """Finish what waits, then close; return False if that took too long.

        Outcomes that were not delivered before `close` returns are never delivered.
        """
