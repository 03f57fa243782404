"""What waits for agents that are absent: in order, and within a number and a size."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import TYPE_CHECKING

from busd import Refuse

if TYPE_CHECKING:
    from busd_plugins.bub.errand import Errand

MAX_HELD_BYTES = 64 * 1024 * 1024  # of all agents together
MAX_HELD_MESSAGES = 20_000
_RETRY_SECONDS = 1.0


class Held:
    """Counts the messages that wait, of all agents together."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0

    def add(self, errand: Errand) -> None:
        self.messages += 1
        self.bytes += errand.size

    def remove(self, errand: Errand) -> None:
        self.messages -= 1
        self.bytes -= errand.size

    def has_room(self, errand: Errand) -> bool:
        is_light = self.bytes + errand.size <= MAX_HELD_BYTES
        return is_light and self.messages < MAX_HELD_MESSAGES


class Waiting:
    """The messages that wait for one agent."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._errands: list[Errand] = []  # in the order they came

    def __len__(self) -> int:
        return len(self._errands)

    def __iter__(self) -> Iterator[Errand]:
        return iter(self._errands)

    def check_room(self, max_waiting: int, errand: Errand) -> None:
        """Raise Refuse if this one would be too much."""
        if not self._held.has_room(errand) or len(self._errands) >= max_waiting:
            raise Refuse("agent is starting, too many messages wait", retry_seconds=_RETRY_SECONDS)

    def add(self, errand: Errand) -> None:
        """Put a message in its place: one that was lost stands before all that came later."""
        self._held.add(errand)
        insort(self._errands, errand, key=lambda each: each.number)

    def take_all(self) -> list[Errand]:
        """Give all that waits, in order; nothing waits then."""
        errands, self._errands = self._errands, []
        for errand in errands:
            self._held.remove(errand)
        return errands

    def discard(self, errand: Errand) -> None:
        """Take one out, if it is still there."""
        if errand in self._errands:
            self._errands.remove(errand)
            self._held.remove(errand)
