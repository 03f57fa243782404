"""Workers: run a handler for each message, several at a time, without a task per message."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

T = TypeVar("T")


class Workers(Generic[T]):
    """Up to `limit` tasks that take items from one queue, in order.

    A handler that never waits is run again and again by the same task: a chunk of 64 messages
    costs one wake-up, not 64 tasks.
    """

    def __init__(
        self, tasks: TaskGroup, handle: Callable[[T], Awaitable[None]], limit: int
    ) -> None:
        self._tasks = tasks
        self._handle = handle
        self._limit = limit
        self._items: deque[T] = deque()
        self._idle: list[anyio.Event] = []
        self._started = 0
        self._is_waking = False  # a worker was woken and has not run yet

        self._start_one()

    def put(self, item: T) -> None:
        """Add an item; called by transports, where no task may be started."""
        self._items.append(item)
        self._wake_one()

    def _wake_one(self) -> None:
        if self._idle and not self._is_waking:
            self._is_waking = True
            self._idle.pop().set()

    def _start_one(self) -> None:
        self._started += 1
        self._tasks.start_soon(self._work)

    async def _work(self) -> None:
        while True:
            self._is_waking = False
            while self._items:
                item = self._items.popleft()
                # This handler may wait, so another worker must be ready for the next item.
                if not self._idle and not self._is_waking and self._started < self._limit:
                    self._start_one()
                elif self._items:
                    self._wake_one()
                await self._handle(item)
            resume = anyio.Event()
            self._idle.append(resume)
            await resume.wait()
