"""The file of the store, and transactions on it.

It uses a write-ahead log with `synchronous=FULL`, so a commit is one write and one fsync. As in
`busd/mail/file.py`, a commit that fails is rolled back and the database stays open; what it
contained may be there after all if the process dies before the next commit.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog

from busd.database import DatabaseFile, is_damage
from busd.errors import ConfigError
from busd.gateway.schema import LAYOUT
from busd.gateway.store import Store
from busd.gateway.store_limits import StoreLimits
from busd.gateway.stored import StoreFailed

log = structlog.get_logger("busd.gateway")

Operation = Callable[[Store], Any]


class Problem(msgspec.Struct, frozen=True):
    """The outcome of an operation that has raised something."""

    exception: Exception


class StoreFile(DatabaseFile):
    """The open database: opened where it is created, then used by one thread."""

    def __init__(self, path: Path, limits: StoreLimits, clock: Callable[[], float]) -> None:
        self.is_failing = False
        self._limits, self._clock = limits, clock
        super().__init__(path, LAYOUT)

    def prepare(self, db: sqlite3.Connection) -> None:
        self._store = Store(db, self._limits, self._clock)

    def execute(self, operations: Sequence[Operation]) -> list[Any]:
        """Execute operations in one transaction; return what each has returned, or a Problem.

        An operation that raises an exception changes nothing, and the others are executed. If the
        transaction fails, nothing has changed, and each outcome is StoreFailed.
        """
        try:
            changes = self.open().total_changes
            with self.transaction() as db:
                outcomes = [_execute_one(db, self._store, each) for each in operations]
        except (sqlite3.Error, OSError, ConfigError) as problem:
            self._note_failure(problem)
            return [Problem(StoreFailed(_reason(problem))) for _ in operations]
        except Exception:  # a bug of ours; whoever waits gets an outcome
            log.exception("store.broken", path=str(self.path))
            return [Problem(StoreFailed("internal error")) for _ in operations]
        if db.total_changes != changes:  # reading succeeds on a full disk, too
            self._note_success()
        return outcomes

    def _note_failure(self, problem: Exception) -> None:
        if not self.is_failing:
            log.error("store.failed", path=str(self.path), problem=str(problem))
        self.is_failing = True
        if is_damage(problem):
            with contextlib.suppress(OSError):  # the next transaction fails, too, and tries again
                self.move_aside(str(problem))

    def _note_success(self) -> None:
        if self.is_failing:
            self.is_failing = False
            log.warning("store.recovered", path=str(self.path))

    def on_moved(self, aside: str, problem: str) -> None:
        log.error("store.moved_aside", path=str(self.path), to=aside, problem=problem)

    def on_lost(self) -> None:
        log.error("store.file_lost", path=str(self.path))


def _execute_one(db: sqlite3.Connection, store: Store, operation: Operation) -> Any:
    """Execute an operation; raise what makes the whole transaction fail."""
    db.execute("SAVEPOINT operation")
    try:
        outcome = operation(store)
    except Exception as problem:
        # SQLite itself rolls back the transaction if it cannot go on, for instance on a full disk.
        if isinstance(problem, sqlite3.OperationalError) or is_damage(problem):
            raise
        db.execute("ROLLBACK TO operation")
        outcome = Problem(problem)
    db.execute("RELEASE operation")
    return outcome


def _reason(problem: Exception) -> str:
    """Return what is wrong, without the path."""
    if isinstance(problem, ConfigError):
        return "its file was replaced"
    if isinstance(problem, OSError):
        return problem.strerror or "input or output has failed"
    return str(problem)
