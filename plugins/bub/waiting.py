"""What waits for agents that are absent: in order, and within a number and a size."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from busd import Refuse

if TYPE_CHECKING:
    from busd_plugins.bub.errand import Errand

MAX_HELD_BYTES = 64 * 1024 * 1024  # of all agents together
_RETRY_SECONDS = 1.0


class HeldBytes:
    """Counts the payloads that wait, of all agents together."""

    def __init__(self) -> None:
        self.count = 0


class Waiting:
    """The messages that wait for one agent."""

    def __init__(self, held: HeldBytes) -> None:
        self._held = held
        self._errands: list[Errand] = []  # in the order they came

    def __len__(self) -> int:
        return len(self._errands)

    def check_room(self, max_waiting: int, errand: Errand) -> None:
        """Raise Refuse if this one would be too much."""
        is_heavy = self._held.count + errand.size > MAX_HELD_BYTES
        if is_heavy or len(self._errands) >= max_waiting:
            raise Refuse("agent is starting, too many messages wait", retry_seconds=_RETRY_SECONDS)

    def add(self, errand: Errand) -> None:
        """Put a message in its place: one that was lost stands before all that came later."""
        self._held.count += errand.size
        insort(self._errands, errand, key=lambda each: each.number)

    def take_all(self) -> list[Errand]:
        """Give all that waits, in order; nothing waits then."""
        errands, self._errands = self._errands, []
        self._held.count -= sum(errand.size for errand in errands)
        return errands

    def discard(self, errand: Errand) -> None:
        """Take one out, if it is still there."""
        if errand in self._errands:
            self._errands.remove(errand)
            self._held.count -= errand.size
