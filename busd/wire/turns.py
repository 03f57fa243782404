"""Turns: connections with unfinished work, each served a slice at a time.

A connection works off what it receives for at most SLICE_SECONDS. It looks at the clock after every
expensive frame (`Connection.charge`) and after every PIECE_BYTES of cheap ones, so not at all for
the short chunks of a well-behaved peer. If time is up, the rest of the chunk waits here and the
connection is not read until it is done. Each round of the event loop serves the waiting connections
for about one slice in all; between two rounds the loop reads from everybody else. While some wait,
a chunk of another connection gets no slice at once: after the first look it joins the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Protocol

SLICE_SECONDS = 0.002
PIECE_BYTES = 32_768  # hold at most 2.5 ms of cheap frames: a message takes 60 bytes and 4 µs

Schedule = Callable[[Callable[[], None]], object]


class Waiter(Protocol):
    """A connection, or whatever else has more to do than fits in one turn."""

    def take_turn(self) -> None:
        """Work for one slice; add yourself to the turns again if something is left."""


class Turns:
    """The queue of those that wait for their next turn; `schedule` runs a function soon."""

    __slots__ = ("_is_due", "_schedule", "_waiting", "make_schedule", "slice_seconds")

    def __init__(self, make_schedule: Callable[[], Schedule]) -> None:
        self.make_schedule = make_schedule  # called with the first waiter: then there is a loop
        self.slice_seconds = SLICE_SECONDS
        self._schedule: Schedule | None = None
        self._waiting: dict[Waiter, None] = {}  # in order; nobody waits twice
        self._is_due = False

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    def add(self, waiter: Waiter) -> None:
        """Give `waiter` a turn in one of the next rounds of the loop."""
        self._waiting[waiter] = None
        if not self._is_due:
            self._plan()

    def remove(self, waiter: Waiter) -> None:
        self._waiting.pop(waiter, None)

    def _plan(self) -> None:
        if self._schedule is None:
            self._schedule = self.make_schedule()
        self._is_due = True
        self._schedule(self._run)

    def _run(self) -> None:
        """Serve those that wait now, once each, until a slice is used up."""
        self._is_due = False
        ends = monotonic() + self.slice_seconds
        for _ in range(len(self._waiting)):
            if not self._waiting:
                break  # one's turn ended another one
            waiter = next(iter(self._waiting))
            del self._waiting[waiter]
            waiter.take_turn()
            if monotonic() >= ends:
                break
        if self._waiting and not self._is_due:
            self._plan()
