"""The file of the SQLite engine, and transactions on it.

It uses a write-ahead log with `synchronous=FULL`, so a commit is one write and one fsync. Measured
on ext4 with 200-byte payloads, keeps per second at 1, 64 and 1000 per transaction: 9,500, 112,000
and 257,000; with a rollback journal 2,000, 46,000 and 202,000, and four times the CPU at 1.

A commit that fails is rolled back, and the database stays open: opening it again would make SQLite
recover the log, and a transaction whose fsync failed might then be there after all. For the same
reason, one that failed may be there if the process dies before the next commit.
"""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from pathlib import Path
from typing import Any

import structlog

from busd.bus.mail import MailLimits, Totals
from busd.bus.mail_store import Operation
from busd.errors import BusdError, ConfigError
from busd.journal.database import (
    connect_private,
    find_damage,
    is_damage,
    is_of_disk,
    rename_aside,
)
from busd.journal.retention import read_number, read_pragma
from busd.mail.engine import Engine
from busd.mail.state import EngineState, Sequence
from busd.mail.tables import APPLICATION_ID, SCHEMA, SCHEMA_VERSION, SqlTables

log = structlog.get_logger("busd.mail")


class MailFile:
    """The open database: opened where it is created, then used by one thread."""

    def __init__(self, path: Path, limits: MailLimits) -> None:
        self.path = path
        self._state = EngineState(limits)
        self._db: sqlite3.Connection | None = None
        self._inode = 0
        self.has_written = False  # the last transaction has changed the file
        try:
            self._open()
        except OSError as problem:
            kind = BusdError if problem.errno == errno.ENOSPC else ConfigError
            raise kind(f"cannot open the mailboxes {path}: {problem.strerror}") from None
        except sqlite3.Error as problem:
            # A full disk is no mistake in the settings: the service manager shall try again.
            kind = BusdError if is_of_disk(problem) else ConfigError
            raise kind(f"cannot open the mailboxes {path}: {problem}") from None

    @property
    def totals(self) -> Totals:
        return self._state.totals

    def write(self, operations: list[Operation[Any]], *, must_write: bool = False) -> list[Any]:
        """Execute operations in one transaction; return the outcome of each.

        If the transaction fails, raise OSError or sqlite3.Error; then nothing has changed. With
        `must_write`, it also fails if it changes nothing and the disk cannot be written.
        """
        db = self._open()
        changes = db.total_changes
        state = self._state
        tables = SqlTables(db)
        engine = Engine(tables, state)
        try:
            tables.begin()
            outcomes = [engine.apply(operation) for operation in operations]
            if must_write:
                state.sequence.reserve()  # SQLite does not write a value that is the same
            tables.commit(state.sequence.reserved if state.sequence.has_reserved else None)
        except BaseException:
            state.rollback()
            self._roll_back(db)
            raise
        state.commit()
        self.has_written = db.total_changes != changes
        return outcomes

    def _roll_back(self, db: sqlite3.Connection) -> None:
        if db.in_transaction:
            try:
                db.execute("ROLLBACK")
            except sqlite3.Error:
                self._close()

    # Opening and closing

    def check(self) -> None:
        """Check every page; move the file aside if it is damaged."""
        if problem := find_damage(self._open()):
            self.move_aside(problem)

    def interrupt(self) -> None:
        """Abort a statement that another thread waits for."""
        if self._db:
            self._db.interrupt()

    def move_aside(self, problem: str) -> None:
        """Rename the file, so that mail can be recovered from it; the next write creates a new one.

        Numbers that were given out are not given out again.
        """
        self._close()
        aside = rename_aside(self.path, "corrupt")
        log.error("mail.moved_aside", path=str(self.path), to=aside, problem=problem)

    def close(self) -> None:
        """Close the database; record the last number, so that the next run goes on from there."""
        if self._db:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("UPDATE sequence SET reserved = ?", (self._state.sequence.last,))
        self._close()

    def _close(self) -> None:
        db, self._db = self._db, None
        if db:
            with contextlib.suppress(sqlite3.Error):  # a full disk: the rest stays in the WAL
                db.close()

    def _open(self) -> sqlite3.Connection:
        """Return the database; open it again if it was closed, or deleted by somebody else."""
        if self._db:
            if self._is_in_place():
                return self._db
            log.error("mail.file_lost", path=str(self.path), **_lost(self._state.totals))
            self._close()
        try:
            self._db = self._connect()
        except sqlite3.DatabaseError as problem:
            if not is_damage(problem):
                raise
            self.move_aside(str(problem))
            self._db = self._connect()
        self._inode = self.path.stat().st_ino
        return self._db

    def _is_in_place(self) -> bool:
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def _connect(self) -> sqlite3.Connection:
        db = connect_private(self.path)
        try:
            self._set_up(db)
        except BaseException:
            db.close()
            raise
        return db

    def _set_up(self, db: sqlite3.Connection) -> None:
        is_new = not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not is_new:
            self._check_kind(db)
        db.execute("PRAGMA journal_mode = WAL").fetchall()
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA wal_autocheckpoint = 4096").fetchall()
        db.execute(f"PRAGMA journal_size_limit = {32 * 1024 * 1024}").fetchall()
        if is_new:
            db.executescript(SCHEMA)
        reserved = read_number(db, "SELECT reserved FROM sequence")
        # Before any number is given out: this run may be killed.
        first, end = max(reserved, self._state.sequence.last), Sequence.BLOCK
        db.execute("UPDATE sequence SET reserved = ?", (first + end,))
        state = EngineState(self._state.limits, first, first + end)
        SqlTables(db).load(state)
        self._state = state

    def _check_kind(self, db: sqlite3.Connection) -> None:
        if read_pragma(db, "application_id") != APPLICATION_ID:
            raise ConfigError(f"{self.path} holds no mailboxes of busd; move it away")
        version = read_pragma(db, "user_version")
        if version != SCHEMA_VERSION:
            raise ConfigError(
                f"the mailboxes {self.path} were written by another version of busd (their schema "
                f"is {version}, this one knows {SCHEMA_VERSION}): install that, or move them away"
            )


def _lost(totals: Totals) -> dict[str, int]:
    return {"mail": totals.count, "dead": totals.dead}
