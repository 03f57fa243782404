"""A start in progress, shared by all who wait for the worker."""

from __future__ import annotations

import anyio

from busd import Refuse


class Start:
    """A start that is under way: all who want the worker wait for this one."""

    def __init__(self) -> None:
        self.is_wanted = False  # somebody waits for it; else it is only watched
        self.was_queued = False  # others were started first
        self.scope = anyio.CancelScope()
        self._refusal: Refuse | None = None
        self._is_over = anyio.Event()

    async def call_off(self) -> None:
        """End it before there is a process."""
        self.scope.cancel()
        await self._is_over.wait()

    def settle(self, refusal: Refuse | None) -> None:
        self._refusal = refusal
        self._is_over.set()

    async def wait(self, seconds: float) -> None:
        """Wait for its end; raises Refuse saying why if the worker is not there then.

        One that is late only because others were started first is not refused: it goes on.
        """
        with anyio.move_on_after(seconds):
            await self._is_over.wait()
        if not self._is_over.is_set():
            if self.was_queued:
                return
            raise Refuse("the worker is still starting", retry_seconds=1)
        if self._refusal is not None:
            raise Refuse(self._refusal.reason, retry_seconds=self._refusal.retry_seconds)
