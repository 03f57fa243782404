"""What happened to one worker, for whoever asked for it to read."""

from __future__ import annotations

from collections import deque

import anyio

from busd_plugins.bub.spawner import Report

_MAX_UNREAD = 64


class Inbox:
    """Reports that wait to be read; the oldest are lost if nobody does, the last one never."""

    def __init__(self) -> None:
        self._reports: deque[Report] = deque(maxlen=_MAX_UNREAD)
        self._news = anyio.Event()
        self.ended = anyio.Event()  # nothing comes after `failed` or `stopped`

    def put(self, report: Report) -> None:
        if self.ended.is_set():
            return
        self._reports.append(report)
        if report.kind in ("failed", "stopped"):
            self.ended.set()
        self._news.set()

    def __aiter__(self) -> Inbox:
        return self

    async def __anext__(self) -> Report:
        """Give the next report, to one reader, until after the last."""
        while not self._reports:
            if self.ended.is_set():
                raise StopAsyncIteration
            self._news = anyio.Event()
            await self._news.wait()
        return self._reports.popleft()
