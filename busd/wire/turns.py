"""Turns: connections with unfinished work, each served a slice at a time.

A connection works off what it receives for at most SLICE_SECONDS. It looks at the clock after every
LOOK_FRAMES cheap frames and after every expensive one, and not at all for the short chunks of a
well-behaved peer. If time is up, the rest of the chunk waits here and the connection is not read
until it is done. Each round of the event loop serves the waiting connections for about one slice in
all; between two rounds the loop reads from everybody else. While some connections wait, a chunk of
another one gets no slice at once: after the first look at the clock it joins the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Protocol

SLICE_SECONDS = 0.002
LOOK_FRAMES = 8  # a look takes 0.2 µs, a frame at least 1

Schedule = Callable[[Callable[[], None]], object]


class Waiter(Protocol):
    """A connection, or whatever else has more to do than fits in one turn."""

    def take_turn(self) -> None:
        """Work for one slice; add yourself to the turns again if something is left."""


class Turns:
    """The queue of those that wait for their next turn; `schedule` runs a function soon."""

    __slots__ = ("_is_due", "_schedule", "_waiting", "make_schedule")

    def __init__(self, make_schedule: Callable[[], Schedule]) -> None:
        self.make_schedule = make_schedule  # called with the first waiter: then there is a loop
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
        ends = monotonic() + SLICE_SECONDS
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
