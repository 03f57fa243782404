"""Places: how many requests may be under way, of one hook and in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio

from busd_plugins.hook.errors import HookError

MAX_AT_ONCE, MAX_OF_A_HOOK = 512, 128
MAX_BODIES = 64  # that are being read; others wait
_BODY_SECONDS = 5.0


class Places:
    """The places of requests; there is none left if too many are under way."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self._bodies = anyio.Semaphore(MAX_BODIES)

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

    @asynccontextmanager
    async def take_body(self) -> AsyncIterator[None]:
        """Wait for a place to read a body; raise HookError if that takes too long."""
        with anyio.move_on_after(_BODY_SECONDS) as waiting:
            await self._bodies.acquire()
        if waiting.cancelled_caught:
            raise HookError(503, "busy", "too many requests are being read", retry_seconds=1)
        try:
            yield
        finally:
            self._bodies.release()
