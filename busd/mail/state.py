"""What an engine knows without reading its tables: counts per address, claims, the sequence.

A transaction that fails takes its changes here back, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from busd.bus.mail import Box, BoxFull, MailLimits, Totals

K = TypeVar("K")
V = TypeVar("V")

NOTHING = Totals()


class Undoable(dict[K, V]):
    """A dict whose changes by `put` since the last `commit` can be undone."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[K, V | None] = {}

    def put(self, key: K, value: V | None) -> None:
        """Set a value; None deletes it."""
        self._before.setdefault(key, self.get(key))
        self._set(key, value)

    def commit(self) -> None:
        self._before.clear()

    def rollback(self) -> None:
        for key, value in self._before.items():
            self._set(key, value)
        self._before.clear()

    def _set(self, key: K, value: V | None) -> None:
        if value is None:
            self.pop(key, None)
        else:
            self[key] = value


class Sequence:
    """Numbers that increase, even over a restart: ids of mail and fencing numbers.

    They are reserved in blocks, so that most transactions need not record the last one.
    """

    BLOCK = 10_000

    def __init__(self, last: int, reserved: int) -> None:
        self.last = last
        self.reserved = self._reserved_before = reserved

    def next(self) -> int:
        self.last += 1
        if self.last > self.reserved:
            self.reserved = self.last + self.BLOCK
        return self.last

    def reserve(self) -> None:
        """Reserve one number more, so that something is recorded in this transaction."""
        self.reserved += 1

    @property
    def has_reserved(self) -> bool:
        """Whether `reserved` has to be recorded in this transaction."""
        return self.reserved != self._reserved_before

    def commit(self) -> None:
        self._reserved_before = self.reserved

    def rollback(self) -> None:
        self.reserved = self._reserved_before
        # A number that was given out in vain may be given out again: nobody has heard of it.
        self.last = min(self.last, self.reserved)


class EngineState:
    """Counts, claims and the sequence; all of it changes with a transaction or not at all."""

    def __init__(self, limits: MailLimits, last: int = 0, reserved: int = 0) -> None:
        self.limits = limits
        self.boxes: Undoable[str, Totals] = Undoable()
        self.accounts: Undoable[str, Totals] = Undoable()  # by sending identity
        self.claims: Undoable[str, Box] = Undoable()
        self.sequence = Sequence(last, reserved)
        self.totals = self._totals_before = NOTHING

    def copy(self) -> EngineState:
        """Return a state of its own that is the same; to be called between transactions."""
        state = EngineState(self.limits, self.sequence.last, self.sequence.reserved)
        state.boxes.update(self.boxes)
        state.accounts.update(self.accounts)
        state.claims.update(self.claims)
        state.totals = state._totals_before = self.totals
        return state

    def commit(self) -> None:
        for part in (self.boxes, self.accounts, self.claims, self.sequence):
            part.commit()
        self._totals_before = self.totals

    def rollback(self) -> None:
        for part in (self.boxes, self.accounts, self.claims, self.sequence):
            part.rollback()
        self.totals = self._totals_before

    def add(
        self, address: str, count: int = 0, size: int = 0, dead: int = 0, dead_bytes: int = 0
    ) -> None:
        """Change the counts of an address and the totals."""
        box = self.boxes.get(address, NOTHING)
        box = _sum(box, count, size, dead, dead_bytes)
        self.boxes.put(address, box if box.count or box.dead else None)
        self.totals = _sum(self.totals, count, size, dead, dead_bytes)

    def charge(self, account: str, count: int, size: int) -> None:
        """Change the counts of a sending identity; mail of nobody in particular has none."""
        if account:
            self._charge(account, count, size, 0, 0)

    def charge_dead(self, account: str, count: int, size: int) -> None:
        """Change the counts of the dead letters that a sending identity has caused."""
        self._charge(account, 0, 0, count, size)

    def _charge(self, account: str, count: int, size: int, dead: int, dead_bytes: int) -> None:
        used = _sum(self.accounts.get(account, NOTHING), count, size, dead, dead_bytes)
        self.accounts.put(account, used if used.count or used.dead else None)

    def most_dead(self) -> str | None:
        """Return the identity with the most dead letters if there are too many, else None."""
        accounts, totals = self.accounts, self.totals
        if totals.dead > self.limits.dead_count:
            return max(accounts, key=lambda account: accounts[account].dead)
        if totals.dead_bytes > self.limits.dead_bytes:
            return max(accounts, key=lambda account: accounts[account].dead_bytes)
        return None

    def full(self, address: str, account: str, size: int) -> BoxFull | None:
        """Return the limit that one more mail would exceed, if any."""
        limits, box, totals = self.limits, self.boxes.get(address, NOTHING), self.totals
        used = self.accounts.get(account, NOTHING)
        if used.count >= limits.identity_count:
            return BoxFull("identity_count", limits.identity_count)
        if used.bytes + size > limits.identity_bytes:
            return BoxFull("identity_bytes", limits.identity_bytes)
        if box.count >= limits.box_count:
            return BoxFull("box_count", limits.box_count)
        if box.bytes + size > limits.box_bytes:
            return BoxFull("box_bytes", limits.box_bytes)
        if totals.count >= limits.total_count:
            return BoxFull("total_count", limits.total_count)
        if totals.bytes + size > limits.total_bytes:
            return BoxFull("total_bytes", limits.total_bytes)
        return None

    def is_held(self, box: Box) -> bool:
        """Return whether a claim has not ended."""
        claim = self.claims.get(box.address)
        return claim is not None and claim.fence == box.fence

    def claims_of(self, holder: str) -> Iterator[Box]:
        return (box for box in list(self.claims.values()) if box.holder == holder)


def _sum(totals: Totals, count: int, size: int, dead: int, dead_bytes: int) -> Totals:
    return Totals(
        totals.count + count,
        totals.bytes + size,
        totals.dead + dead,
        totals.dead_bytes + dead_bytes,
    )
