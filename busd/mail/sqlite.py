"""The SQLite engine: a list of operations on the event loop, and one thread that writes them.

The loop owns the list of what waits. Whenever the thread is free, it gets the whole list and
writes it in one transaction: the busier the bus, the more operations share one fsync. The outcomes
return to the loop by `schedule`. One batch is outstanding at a time.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import structlog

from busd.bus.mail import MailLimits, StoreBusy, StoreFailed, Totals
from busd.bus.mail_store import Done, Expire, Keep, Operation
from busd.database import is_damage
from busd.errors import ConfigError
from busd.mail.file import MailFile

log = structlog.get_logger("busd.mail")

R = TypeVar("R")
Schedule = Callable[[Callable[[], None]], object]
Batch = list[tuple[Operation[Any], Done[Any]]]
_SLICE = 100  # outcomes delivered per turn of the loop: about 2 ms


class SqliteMailStore:
    """A `MailStore` in an SQLite file.

    `schedule` is called in the writer's thread, to have a function called on the loop: for asyncio
    it is `loop.call_soon_threadsafe`, for trio `token.run_sync_soon`.
    """

    def __init__(self, path: Path, schedule: Schedule, limits: MailLimits) -> None:
        self.is_failing = False
        self._schedule = schedule
        self._limits = limits
        self._file = MailFile(path, limits)
        # Of the loop
        self._waiting: Batch = []
        self._waiting_bytes = 0
        self._count = 0  # of operations whose outcome was not delivered yet
        self._is_due = False  # `_hand_over` is scheduled
        self._ended: deque[tuple[tuple[Operation[Any], Done[Any]], Any]] = deque()
        # Of both, under the lock of `_changed`
        self._changed = threading.Condition()
        self._batch: Batch | None = None
        self._outcomes: list[Any] | None = None  # of the batch; None: it is being written
        self._is_checking = True
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="busd-mail", daemon=True)
        self._thread.start()

    # For the event loop: these never wait

    @property
    def waiting(self) -> int:
        return self._count

    @property
    def totals(self) -> Totals:
        return self._file.totals

    def submit(self, operation: Operation[R], done: Done[R], /) -> None:
        """Execute an operation: see `MailStore`."""
        if isinstance(operation, Keep):
            if self._count >= self._limits.waiting_count:
                return done(StoreBusy(self._limits.waiting_count))
            if self._waiting_bytes > self._limits.waiting_bytes:
                return done(StoreBusy(self._limits.waiting_bytes))
            self._waiting_bytes += len(operation.mail.payload)
        self._count += 1
        self._waiting.append((operation, done))
        if self._batch is None and not self._is_due:
            # In the next turn: else half of the commits have only the first message of a chunk.
            self._is_due = True
            self._schedule(self._hand_over)
        return None

    def _hand_over(self) -> None:
        self._is_due = False
        if self._batch is not None or not self._waiting:
            return
        with self._changed:
            self._batch, self._waiting = self._waiting, []
            self._changed.notify_all()

    def _deliver(self) -> None:
        """Deliver the outcomes of a batch, after handing over the next one."""
        with self._changed:
            batch, outcomes = self._batch, self._outcomes
            if batch is None or outcomes is None:
                return  # delivered by `close`
            self._batch = self._outcomes = None
        if self._waiting:
            self._hand_over()
        self._ended.extend(zip(batch, outcomes, strict=True))
        if len(self._ended) == len(batch):  # else a slice is scheduled
            self._deliver_slice()

    def _deliver_slice(self) -> None:
        """Deliver some outcomes; a batch may have 10,000, which would hold the loop."""
        for _ in range(min(_SLICE, len(self._ended))):
            (operation, done), outcome = self._ended.popleft()
            self._count -= 1
            if isinstance(operation, Keep):
                self._waiting_bytes -= len(operation.mail.payload)
            try:
                done(outcome)
            except Exception:  # a bug of ours: the others get their outcomes
                log.exception("mail.broken", operation=type(operation).__name__)
        if self._ended:
            self._schedule(self._deliver_slice)

    # At the end: this waits

    def close(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        self._hand_over()
        with self._changed:
            if self._is_checking:
                self._file.interrupt()
        while self._batch is not None and self._has_outcomes(deadline):
            self._deliver()
        while self._ended:
            self._deliver_slice()
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        self._thread.join(max(deadline - time.monotonic(), 0.0))
        if self._thread.is_alive() or self._count:
            log.warning("mail.abandoned", operations=self._count)
            return False
        return True

    def _has_outcomes(self, deadline: float) -> bool:
        with self._changed:
            left = max(deadline - time.monotonic(), 0.0)
            return self._changed.wait_for(lambda: self._outcomes is not None, left)

    # The thread

    def _run(self) -> None:
        self._check()
        while True:
            with self._changed:
                self._changed.wait_for(self._has_to_act)
                batch = self._batch if self._outcomes is None else None
            if batch is None:
                break
            outcomes = self._write([operation for operation, _ in batch])
            with self._changed:
                self._outcomes = outcomes
                self._changed.notify_all()
            try:
                self._schedule(self._deliver)
            except RuntimeError:
                break  # the loop has ended
        self._file.finish()

    def _has_to_act(self) -> bool:
        return self._is_stopping or (self._batch is not None and self._outcomes is None)

    def _check(self) -> None:
        """Move a damaged file aside before anything is written to it."""
        self._file.check()
        with self._changed:
            self._is_checking = False

    def _write(self, operations: list[Operation[Any]]) -> list[Any]:
        try:
            # What only reads works on a full disk, too: so something has to be written each second.
            must_write = self.is_failing and any(type(each) is Expire for each in operations)
            outcomes = self._file.write(operations, must_write=must_write)
        except (sqlite3.Error, OSError, ConfigError) as problem:
            self._note_failure(problem)
            return [StoreFailed(str(problem))] * len(operations)
        except Exception as problem:
            # A value that SQLite cannot store, or a bug of ours: the others are not to suffer.
            if len(operations) > 1:
                return [self._write([operation])[0] for operation in operations]
            log.exception("mail.broken", operation=type(operations[0]).__name__)
            return [StoreFailed(str(problem))]
        if self._file.has_written:
            self._note_success()
        return outcomes

    def _note_failure(self, problem: Exception) -> None:
        if not self.is_failing:
            log.error("mail.failed", path=str(self._file.path), problem=str(problem))
        self.is_failing = True
        if is_damage(problem):
            try:
                self._file.move_aside(str(problem))
            except OSError:
                pass  # the next write fails, too, and tries again

    def _note_success(self) -> None:
        if self.is_failing:
            self.is_failing = False
            log.warning("mail.recovered", path=str(self._file.path))
