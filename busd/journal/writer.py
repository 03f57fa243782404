"""The writer of the activity log: one thread that writes one batch at a time.

It retries for as long as the disk is full, starts a new file when the old one is damaged, and
applies the retention limits in small steps between batches.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from busd.database import is_damage
from busd.errors import ConfigError
from busd.journal.blocks import RecordBatch
from busd.journal.file import JournalFile
from busd.journal.settings import JournalSettings

log = structlog.get_logger("busd.journal")

RETRY_SECONDS = 0.5
IDLE_SECONDS = 30.0  # between checks of the retention limits when nothing is written


class JournalWriter:
    """The thread, and its interface to the event loop."""

    def __init__(
        self, path: Path, settings: JournalSettings, clock: Callable[[], float] = time.time
    ) -> None:
        self.settings = settings
        self.written = 0
        self.dropped = 0
        self.write_errors = 0
        self.is_failing = False
        self._file = JournalFile(path, clock)
        self._batch: RecordBatch | None = None
        self._is_checking = True
        self._is_untidy = False
        self._is_idle = False
        self._is_stopping = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="busd-journal", daemon=True)
        self._thread.start()

    # For the event loop: these never wait

    @property
    def is_busy(self) -> bool:
        """Whether a batch is being written."""
        return self._batch is not None

    @property
    def backlog_rows(self) -> int:
        batch = self._batch
        return len(batch.records) if batch else 0

    def write(self, batch: RecordBatch) -> None:
        """Write a batch in the thread; only when not busy."""
        with self._changed:
            self._batch = batch
            self._is_idle = False
            self._changed.notify_all()

    # For other threads, and at the end: these wait

    def wait_until_written(self, seconds: float) -> bool:
        """Wait until no batch is being written; return False if it took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: self._batch is None, seconds)

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until there is nothing to write or to delete; return False if it took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_idle, seconds)

    def close(self, seconds: float) -> bool:
        """Finish the batch and stop; return False if that took too long."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
            if self._is_checking:
                self._file.interrupt()
        self._thread.join(seconds)
        if self._thread.is_alive():
            log.warning("journal.abandoned", rows=self.backlog_rows)
            return False
        return True

    # The thread

    def _run(self) -> None:
        self._check()
        has_more = True  # to tidy
        while True:
            batch = self._next(0 if has_more else IDLE_SECONDS)
            if batch:
                self._write(batch)
                with self._changed:
                    self._batch = None
                    self._changed.notify_all()
            elif self._is_stopping:
                break
            has_more = self._tidy()
        self._file.close()

    def _check(self) -> None:
        """Move a damaged file aside before anything is written to it."""
        self._file.check()
        with self._changed:
            self._is_checking = False

    def _next(self, seconds: float) -> RecordBatch | None:
        """Wait for a batch, for the end, or until it is time to tidy."""
        with self._changed:
            if seconds and not self._batch:
                self._is_idle = True
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._batch or self._is_stopping, seconds)
            self._is_idle = False
            return self._batch

    def _write(self, batch: RecordBatch) -> None:
        """Write a batch, however long it takes; when stopping, try once more."""
        while True:
            is_last_try = self._is_stopping
            if self._has_written(batch):
                return
            if is_last_try:
                self.dropped += len(batch.records)
                log.warning("journal.abandoned", rows=len(batch.records))
                return
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopping, RETRY_SECONDS)

    def _has_written(self, batch: RecordBatch) -> bool:
        try:
            unwritable = self._file.write(batch)
        except (sqlite3.Error, OSError, ConfigError) as problem:
            self._note_failure(problem)
            if is_damage(problem):
                self._start_over(str(problem))
            return False
        except Exception:  # a bug of ours: log it, and keep the thread running
            log.exception("journal.broken", rows=len(batch.records))
            unwritable = len(batch.records)
        self.dropped += unwritable
        self.written += len(batch.records) - unwritable
        self._note_success()
        return True

    def _tidy(self) -> bool:
        """Apply the retention limits for a short time; return whether there is more to do."""
        deadline = time.monotonic() + self.settings.write_seconds / 2
        try:
            while not self._is_stopping and self._file.tidy(self.settings):
                if time.monotonic() > deadline:
                    return True
        except (sqlite3.Error, OSError, ConfigError) as problem:
            if not self._is_untidy:
                log.warning("journal.untidied", path=str(self._file.path), problem=str(problem))
            self._is_untidy = True
            if is_damage(problem):
                self._start_over(str(problem))
        except Exception:  # a bug of ours: log it, and keep the thread running
            if not self._is_untidy:
                log.exception("journal.broken", rows=0)
            self._is_untidy = True
        else:
            self._is_untidy = False
        return False

    def _start_over(self, problem: str) -> None:
        try:
            self._file.move_aside(problem)
        except OSError as trouble:
            self._note_failure(trouble)

    def _note_failure(self, problem: Exception) -> None:
        if not self.is_failing:
            log.error("journal.failed", path=str(self._file.path), problem=str(problem))
        with self._changed:
            self.is_failing = True
            self.write_errors += 1
            self._changed.notify_all()

    def _note_success(self) -> None:
        if self.is_failing:
            self.is_failing = False
            log.warning("journal.recovered", path=str(self._file.path), dropped=self.dropped)
