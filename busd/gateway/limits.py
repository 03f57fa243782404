"""Limits: how many frames a client may send, and how many bytes the gateway holds for it.

A client that exceeds its frames per second is slowed down: the gateway reads its connection no
faster. Only a client that goes on for FLOOD_SECONDS has frames refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable

FLOOD_SECONDS = 5.0
# Before authentication:
STRANGER_FRAME_BYTES = 64 * 1024
STRANGER_UNSENT_BYTES = 256 * 1024
_UNCOUNTED_BYTES = 64 * 1024  # a connection that holds less costs nothing
_BYTES_PER_FRAME = 16 * 1024  # a larger frame costs as much as several
# To authenticate takes a frame or two, and hundreds of strangers may try at a time: the largest
# frame is free, but to decode 64 KiB can take 2 ms.
_STRANGER_COST, _STRANGER_BYTES_PER_FRAME = 5, 2 * 1024
_REFUSED_COST = 0.1  # of a frame that is only refused


def cost_of(size: int, *, is_strangers: bool = False) -> float:
    """Return how many frames a frame of so many bytes counts as."""
    if is_strangers:
        return _STRANGER_COST * (1 + size / _STRANGER_BYTES_PER_FRAME)
    return 1 + size / _BYTES_PER_FRAME


class Allowance:
    """How many more frames a client may send: so many at once, and so many per second."""

    __slots__ = (
        "_burst",
        "_clock",
        "_filled_at",
        "_left",
        "_per_second",
        "_refused_cost",
        "_short_since",
    )

    def __init__(
        self,
        per_second: float,
        at_once: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        refused_cost: float = _REFUSED_COST,  # 1: for what is never refused, only slowed down
    ) -> None:
        self._refused_cost = refused_cost
        self._per_second = per_second
        self._burst = float(at_once)
        self._clock = clock
        self._left = float(at_once)
        self._filled_at = clock()
        self._short_since: float | None = None  # each frame since then had to wait

    def charge(self, cost: float) -> float:
        """Charge a frame, see `cost_of`; return the seconds to wait before its turn."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        self._left -= cost * self._refused_cost if self._is_flooded(now) else cost
        if self._left >= 0:
            self._short_since = None
            return 0.0
        if self._short_since is None:
            self._short_since = now
        return -self._left / self._per_second

    @property
    def is_flooded(self) -> bool:
        """Whether the client has sent too much for so long that its frames are refused."""
        return self._is_flooded(self._clock())

    def _is_flooded(self, now: float) -> bool:
        return self._short_since is not None and now - self._short_since >= FLOOD_SECONDS


class Slots:
    """How many may be at something at a time."""

    __slots__ = ("_left",)

    def __init__(self, limit: int) -> None:
        self._left = limit

    def take(self) -> bool:
        """Occupy a slot; return False if there is none."""
        if self._left <= 0:
            return False
        self._left -= 1
        return True

    def free(self) -> None:
        self._left += 1


class Budget:
    """Bytes that the gateway holds for some clients, and for all."""

    __slots__ = ("_limit", "_parent", "used")

    def __init__(self, limit: int, parent: Budget | None = None) -> None:
        self.used = 0
        self._limit = limit
        self._parent = parent

    def add(self, count: int) -> None:
        self.used += count
        if self._parent is not None:
            self._parent.add(count)

    @property
    def is_exceeded(self) -> bool:
        return self.used > self._limit or (self._parent is not None and self._parent.is_exceeded)


UNCHARGED = Budget(2**62)
"""The budget of a connection until it is known who pays."""


class Holding:
    """What one connection holds, of some kind."""

    __slots__ = ("_budget", "_bytes")

    def __init__(self) -> None:
        self._budget = UNCHARGED
        self._bytes = 0

    def hold(self, size: int) -> bool:
        """Set how much is held now; return whether the budget suffices for it."""
        size = 0 if size <= _UNCOUNTED_BYTES else size
        if size == self._bytes:
            return True
        grows = size > self._bytes
        self._budget.add(size - self._bytes)
        self._bytes = size
        return not (grows and self._budget.is_exceeded)

    def move(self, budget: Budget) -> None:
        """Charge another budget from now on."""
        self._budget.add(-self._bytes)
        self._budget = budget
        budget.add(self._bytes)
