"""Places: how many requests may be under way, of one hook and in all.

Who has not proved yet who it is takes no place of a hook, and reads with others of its kind only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from math import inf

import anyio

from busd_plugins.hook.errors import HookError

MAX_AT_ONCE, MAX_OF_A_HOOK = 512, 128
MAX_BODIES = 64  # that are being read; others wait
_WAIT_SECONDS = 5.0
# A body gets so long while others wait: a caller who is known may be slow because we are.
_PROVED_SECONDS, _UNPROVED_SECONDS = 4.0, 1.0


class Places:
    """The places of requests; there is none left if too many are under way."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self.proved = BodyPlaces(_PROVED_SECONDS)
        # Of those whose signature can be checked only with its body.
        self.unproved = BodyPlaces(_UNPROVED_SECONDS)

    @contextmanager
    def take(self, hook: str) -> Iterator[None]:
        """Take a place for the block; raise HookError."""
        if self._taken.total() >= MAX_AT_ONCE:
            raise HookError(503, "busy", "too many requests are under way", retry_seconds=1)
        if self._taken[hook] >= MAX_OF_A_HOOK:
            words = f"{MAX_OF_A_HOOK} requests of this hook are under way"
            raise HookError(429, "too_many_requests", words, retry_seconds=1)
        self._taken[hook] += 1
        try:
            yield
        finally:
            self._taken[hook] -= 1
            if not self._taken[hook]:
                del self._taken[hook]


class BodyPlaces:
    """The places of requests whose bodies are read; who is slow leaves when others wait."""

    def __init__(self, slow_seconds: float) -> None:
        self._slow_seconds = slow_seconds
        self._free = anyio.Semaphore(MAX_BODIES)
        self._reading: dict[anyio.CancelScope, float] = {}  # since when

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Wait for a place to read a body; raise HookError if that takes too long."""
        with anyio.move_on_after(_WAIT_SECONDS) as waiting:
            await self._acquire()
        if waiting.cancelled_caught:
            raise HookError(503, "busy", "too many requests are being read", retry_seconds=1)
        now = anyio.current_time()
        is_awaited = self._free.statistics().tasks_waiting > 0
        with anyio.CancelScope(
            deadline=now + (self._slow_seconds if is_awaited else inf)
        ) as reading:
            self._reading[reading] = now
            try:
                yield
            finally:
                del self._reading[reading]
                self._free.release()
        if reading.cancelled_caught:
            raise HookError(503, "busy", "the body came too slowly", retry_seconds=1)

    async def _acquire(self) -> None:
        try:
            self._free.acquire_nowait()
        except anyio.WouldBlock:
            for reading, since in self._reading.items():
                reading.deadline = min(reading.deadline, since + self._slow_seconds)
            await self._free.acquire()
