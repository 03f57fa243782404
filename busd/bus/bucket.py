"""A token bucket: so many at once, and so many per second after that."""

from __future__ import annotations

from collections.abc import Callable


class Bucket:
    """Counts what may still be done now."""

    __slots__ = ("_burst", "_clock", "_filled_at", "_left", "_per_second")

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._left = float(burst)
        self._filled_at = clock()

    def take(self) -> float:
        """Remove one token and return 0, or return the seconds until there will be one."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self._per_second
