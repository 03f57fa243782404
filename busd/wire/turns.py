"""Turns: connections with unfinished work, each served a slice at a time.

A short chunk is processed at once. A connection works for at most SLICE_SECONDS: it checks the
clock after every expensive frame (`Connection.charge`) and after every PIECE_BYTES of cheap ones.
When time is up, the rest of the chunk waits here, and the connection is not read until the rest is
processed. Each round of the event loop serves the waiting connections for about one slice in all;
between two rounds the loop reads from all other connections.

Many connections can take as long as a single busy one: thousands of short chunks may arrive in one
round. So all but the shortest chunks are counted. The clock is checked after every LOOK_BYTES of
them, and before every request that is not one of the frequent ones. Once ROUND_SECONDS are used
up, further input of this round waits here, too, except for frequent requests in even shorter
chunks (QUICK_BYTES) from a peer that has initialized.

Connections wait in several queues, which are served in turn: one for each identity's short chunks,
one for its long ones, and one for all connections that have not initialized. So a thousand
connections of one user, or of clients that never initialize, delay those of another user by one
slice, not by a thousand; and a peer that sends a message now and then never waits behind peers
that send all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from time import monotonic
from typing import Protocol

SLICE_SECONDS = 0.002
ROUND_SECONDS = 0.005  # 50 busy pairs (W3) take 2.5 ms, and must not wait for each other
PIECE_BYTES = 32_768  # at most 2.5 ms of cheap frames: a message takes 60 bytes and 4 µs
LOOK_BYTES = 49_152  # so that many busy pairs (W3) check once in 150 messages
QUICK_BYTES = 512  # at most 0.05 ms

Schedule = Callable[[Callable[[], None]], object]


class Waiter(Protocol):
    """A connection, or anything else with more work than fits in one turn."""

    @property
    def queue(self) -> Hashable:
        """The queue in which it waits; the queues are served in turn."""

    def take_turn(self) -> None:
        """Process input for one slice; call `Turns.add` again if work is left."""


class Turns:
    """The queues of waiters; `schedule` calls a function in the next round of the loop."""

    __slots__ = (
        "_is_due",
        "_is_over",
        "_round_ends",
        "_schedule",
        "_waiting",
        "round_seconds",
        "slice_seconds",
        "unseen_bytes",
    )

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.slice_seconds = SLICE_SECONDS
        self.round_seconds = ROUND_SECONDS
        self.unseen_bytes = 0  # received since the last check of the clock; counted by connections
        self._waiting: dict[Hashable, dict[Waiter, None]] = {}  # by queue, both in order
        self._is_due = False
        self._is_over = False
        self._round_ends = 0.0  # 0: the clock was not checked in this round

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    def is_round_over(self) -> bool:
        """Check the clock: return whether this round of the loop has used up its time."""
        now = monotonic()
        if now >= self._round_ends:
            if self._is_due and self._round_ends:
                return True  # and check again for the next chunk: `unseen_bytes` stays
            # A new round may have begun since; `_run` resets the time. To schedule `_run` at every
            # check would cost W3 an extra round each time.
            if self._round_ends:
                self._plan()
            self._round_ends = now + self.round_seconds
        self.unseen_bytes = 0
        return False

    def add(self, waiter: Waiter) -> None:
        """Schedule a turn for `waiter` in one of the next rounds of the loop."""
        self._waiting.setdefault(waiter.queue, {})[waiter] = None
        self._plan()

    def end_round(self) -> None:
        """End this round: the caller has caused work that is not measured here."""
        self._is_over = True

    def _plan(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._schedule(self._run)

    def _run(self) -> None:
        """Serve those that wait now, once each, until a slice is used up."""
        self._is_due = self._is_over = False
        self._round_ends = self.unseen_bytes = 0
        ends = monotonic() + self.slice_seconds
        for _ in range(sum(map(len, self._waiting.values()))):
            if not self._waiting:
                break  # the turn of one waiter may end another
            self._take_next().take_turn()
            if self._is_over or monotonic() >= ends:
                break
        if self._waiting:
            self._plan()

    def _take_next(self) -> Waiter:
        """Remove and return the first waiter of the first queue; move that queue to the end."""
        name = next(iter(self._waiting))
        queue = self._waiting.pop(name)
        waiter = next(iter(queue))
        del queue[waiter]
        if queue:
            self._waiting[name] = queue
        return waiter
