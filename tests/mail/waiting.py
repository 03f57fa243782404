"""A store without a loop: its outcomes are delivered where the caller waits for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from busd.bus.mail import MailLimits
from busd.bus.mail_store import MailStore, Operation
from busd.mail.sqlite import SqliteMailStore
from tests.mail.stores import LIMITS, PATIENCE_SECONDS


class Waiting:
    """The SQLite engine; `deliver` waits for the next batch. A `tests.mail.stores.Subject`."""

    def __init__(self, path: Path, limits: MailLimits = LIMITS) -> None:
        self._scheduled: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._path, self._limits = path, limits
        self.store: MailStore = SqliteMailStore(path, self._scheduled.put, limits)

    def deliver(self) -> None:
        self._scheduled.get(timeout=PATIENCE_SECONDS)()

    def submit_all(self, operations: list[Operation[Any]]) -> list[Any]:
        outcomes: list[Any] = []
        for operation in operations:
            self.store.submit(operation, outcomes.append)
        while len(outcomes) < len(operations):
            self.deliver()
        return outcomes

    def restart(self) -> None:
        self.close()
        self.store = SqliteMailStore(self._path, self._scheduled.put, self._limits)

    def close(self) -> None:
        assert self.store.close(PATIENCE_SECONDS)
