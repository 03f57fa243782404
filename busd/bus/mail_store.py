"""The contract of what stores mail: mailboxes that survive a restart, dead letters, keys.

The bus submits operations and gets one outcome for each, in a callback on its own thread:

    store.submit(Keep(mail), done)  # later: done(Kept(...)) or done(BoxFull(...))

An outcome is a value: what the operation returns (`Operation[Kept]` returns `Kept`), or a
`MailFailure`. A change is durable when its outcome arrives; until then it may or may not survive a
crash. Operations take effect in the order of their submission, and each sees those before it.

All times are the time of day in seconds since 1970, and are part of the operations: a store has no
clock. So a clock that jumps forward by a day expires the mail that had less than a day left, and
nothing else, because each `Expire` compares `expires_at` with one `now`. Expired mail goes to the
dead letters, from where it can be revived. A clock that jumps back delays expiry by the jump.

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

    If the sender used the same key within the deduplication window, nothing is kept, and the
    outcome describes the first mail. With `is_key_only` the key is recorded, but no mail: for a
    message that is delivered at once, whose outcome Finish will record.

    Fails with KeyReused, BoxFull, TooLarge, StoreBusy.
    """

    mail: Mail
    is_key_only: bool = False


class Finish(Operation[None]):
    """Record the outcome of a send that had a key; the mail stays as it is.

    Without effect if the send had no key or the key is forgotten.
    """

    id: int
    outcome: bytes


class ForgetKeys(Operation[int]):
    """Forget the keys of mail that was kept before a time; return their number."""

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

    To be done before a second or later attempt is made. Fails with NotHeld, NotFound.
    """

    box: Box
    id: int


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
    """Move one mail to the dead letters. Fails with NotHeld, NotFound."""

    box: Box
    id: int
    reason: str
    now: float


class Purge(Operation[int]):
    """Delete all mail of a mailbox, claimed or not; return the number."""

    address: str


class Expire(Operation[list[Mail]]):
    """Move mail with `expires_at` <= `now` to the dead letters, claimed or not.

    Returns at most `limit`, earliest expiry first and without payloads; call again if it returned
    that many.
    """

    now: float
    limit: int = 1000


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
    """Move a dead letter to the end of its mailbox, with a new id and no attempts.

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
