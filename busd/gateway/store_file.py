"""The file of the store, and transactions on it.

It uses a write-ahead log with `synchronous=FULL`, so a commit is one write and one fsync. As in
`busd/mail/file.py`, a commit that fails is rolled back and the database stays open; what it
contained may be there after all if the process dies before the next commit.
"""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog

from busd.errors import BusdError, ConfigError
from busd.gateway.schema import set_up
from busd.gateway.store import Store
from busd.gateway.store_limits import StoreLimits
from busd.gateway.stored import StoreFailed
from busd.journal.database import (
    connect_private,
    find_damage,
    is_damage,
    is_of_disk,
    rename_aside,
)

log = structlog.get_logger("busd.gateway")

Operation = Callable[[Store], Any]


class Problem(msgspec.Struct, frozen=True):
    """The outcome of an operation that has raised something."""

    exception: Exception


class StoreFile:
    """The open database: opened where it is created, then used by one thread."""

    def __init__(self, path: Path, limits: StoreLimits, clock: Callable[[], float]) -> None:
        self.path = path
        self.is_failing = False
        self._limits, self._clock = limits, clock
        self._open_files: tuple[sqlite3.Connection, Store] | None = None
        self._inode = 0
        try:
            self._open()
        except OSError as problem:
            kind = BusdError if problem.errno == errno.ENOSPC else ConfigError
            raise kind(f"cannot open the conversations {path}: {problem.strerror}") from None
        except sqlite3.Error as problem:
            # A full disk is no mistake in the settings: the service manager shall try again.
            kind = BusdError if is_of_disk(problem) else ConfigError
            raise kind(f"cannot open the conversations {path}: {problem}") from None

    def execute(self, operations: Sequence[Operation]) -> list[Any]:
        """Execute operations in one transaction; return what each has returned, or a Problem.

        An operation that raises an exception changes nothing, and the others are executed. If the
        transaction fails, nothing has changed, and each outcome is StoreFailed.
        """
        try:
            db, store = self._open()
            changes = db.total_changes
            try:
                db.execute("BEGIN IMMEDIATE")
                outcomes = [_execute_one(db, store, operation) for operation in operations]
                db.execute("COMMIT")
            except BaseException:
                self._roll_back(db)
                raise
        except (sqlite3.Error, OSError, ConfigError) as problem:
            self._note_failure(problem)
            return [Problem(StoreFailed(_reason(problem))) for _ in operations]
        except Exception:  # a bug of ours; whoever waits gets an outcome
            log.exception("store.broken", path=str(self.path))
            return [Problem(StoreFailed("internal error")) for _ in operations]
        if db.total_changes != changes:  # reading succeeds on a full disk, too
            self._note_success()
        return outcomes

    def _roll_back(self, db: sqlite3.Connection) -> None:
        if db.in_transaction:
            try:
                db.execute("ROLLBACK")
            except sqlite3.Error:
                self._close()

    def _note_failure(self, problem: Exception) -> None:
        if not self.is_failing:
            log.error("store.failed", path=str(self.path), problem=str(problem))
        self.is_failing = True
        if is_damage(problem):
            with contextlib.suppress(OSError):  # the next transaction fails, too, and tries again
                self._move_aside(str(problem))

    def _note_success(self) -> None:
        if self.is_failing:
            self.is_failing = False
            log.warning("store.recovered", path=str(self.path))

    # Opening and closing

    def check(self) -> None:
        """Check every page; move the file aside if it is damaged."""
        with contextlib.suppress(sqlite3.Error, OSError):  # interrupted, or unreadable for now
            if problem := find_damage(self._open()[0]):
                self._move_aside(problem)

    def interrupt(self) -> None:
        """Abort a check that another thread waits for."""
        if self._open_files:
            self._open_files[0].interrupt()

    def close(self) -> None:
        """Close the database. It is opened again if it is used."""
        self._close()

    def _move_aside(self, problem: str) -> None:
        """Rename the file, so that it can be examined; the next transaction creates a new one."""
        self._close()
        aside = rename_aside(self.path, "corrupt")
        log.error("store.moved_aside", path=str(self.path), to=aside, problem=problem)

    def _close(self) -> None:
        open_files, self._open_files = self._open_files, None
        if open_files:
            with contextlib.suppress(sqlite3.Error):  # a full disk: the rest stays in the WAL
                open_files[0].close()

    def _open(self) -> tuple[sqlite3.Connection, Store]:
        """Return the database; open it again if it was closed, or deleted by somebody else."""
        if self._open_files:
            if self._is_in_place():
                return self._open_files
            log.error("store.file_lost", path=str(self.path))
            self._close()
        try:
            db = self._connect()
        except sqlite3.DatabaseError as problem:
            if not is_damage(problem):
                raise
            self._move_aside(str(problem))
            db = self._connect()
        self._open_files = db, Store(db, self._limits, self._clock)
        self._inode = self.path.stat().st_ino
        return self._open_files

    def _is_in_place(self) -> bool:
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def _connect(self) -> sqlite3.Connection:
        db = connect_private(self.path)
        try:
            set_up(db, self.path)
        except BaseException:
            db.close()
            raise
        return db


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
