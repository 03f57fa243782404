"""Queues: the updates of one chat are processed in order, those of several at the same time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from anyio.abc import TaskGroup

from busd_plugins.telegram.intake import Intake
from busd_plugins.telegram.raw import Raw, chat_of


class Queues:
    """The updates that wait, and a task for each chat that has some.

    Whoever adds updates limits how many there are.
    """

    def __init__(self, intake: Intake, tasks: TaskGroup) -> None:
        self._intake = intake
        self._tasks = tasks
        self._chats: dict[str, deque[tuple[Raw, Callable[[], None]]]] = {}

    def add(self, raw: Raw, on_done: Callable[[], None]) -> None:
        """Put an update behind the others of its chat."""
        chat = chat_of(raw)
        if chat in self._chats:
            self._chats[chat].append((raw, on_done))
            return
        self._chats[chat] = deque([(raw, on_done)])
        self._tasks.start_soon(self._process, chat)

    async def _process(self, chat: str) -> None:
        """Process the updates of one chat until none is left."""
        waiting = self._chats[chat]
        while waiting:
            raw, on_done = waiting[0]
            await self._intake.take(raw)
            waiting.popleft()
            on_done()
        del self._chats[chat]
