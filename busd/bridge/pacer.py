"""The pacer: when the next post may happen, in one chat and in all."""

from __future__ import annotations

import anyio

from busd.bridge.pace import Pace
from busd.errors import Refuse


class Pacer:
    """Spaces what all chats post, and pauses them when the other system asks for it."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self._next_at = 0.0  # the earliest time of the next post to any chat
        self._paused_until = 0.0

    @property
    def paused_seconds(self) -> float:
        """How long all chats are still paused; 0 if they are not."""
        return max(self._paused_until - anyio.current_time(), 0.0)

    def pause(self, seconds: float) -> None:
        self._paused_until = max(self._paused_until, anyio.current_time() + seconds)

    @property
    def is_free(self) -> bool:
        """Whether something could be posted without waiting."""
        return anyio.current_time() >= max(self._next_at, self._paused_until)

    def take(self) -> float:
        """Take the next free place; return how long to wait for it."""
        now = anyio.current_time()
        at = max(now, self._next_at)
        if self.pace.total_per_second > 0:
            self._next_at = at + 1 / self.pace.total_per_second
        return at - now

    async def wait(self, free_at: float, until: float) -> None:
        """Wait for the next place, not before `free_at`.

        Raise Refuse if a pause lasts longer than `until`.
        """
        while True:
            paused = self.paused_seconds
            if paused and anyio.current_time() + paused > until:
                raise Refuse("the other system asks to wait", retry_seconds=paused)
            waiting = max(paused, free_at - anyio.current_time())
            if waiting <= 0:
                break
            await anyio.sleep(waiting)
        await anyio.sleep(self.take())
        if self.paused_seconds:  # since it began to wait
            await self.wait(free_at, until)
