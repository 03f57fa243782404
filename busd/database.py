"""SQLite files that only their user may read.

This module is public: plugins keep their state with it. A file is opened with the pragmas of its
layout, and again if somebody has deleted it. A damaged file is moved aside, so that it can be
examined, and a new one takes its place.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from busd.errors import BusdError, ConfigError
from busd.wire.plain_file import refuse_link

__all__ = ["DatabaseFile", "Layout", "is_damage", "is_of_disk", "read_number", "read_pragma"]

_SUFFIXES = ("-wal", "-shm", "")  # of SQLite's files


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """What a file contains."""

    contents: str  # as in "cannot open the mailboxes PATH"
    tables: str  # the script that creates them
    application_id: int = 0  # tells our file from another program's
    version: int = 0  # of the tables
    is_synced: bool = True  # a commit survives a power failure, not just the death of the process
    can_shrink: bool = False  # its free pages can be returned to the file system
    replaces_older: bool = False  # a file of an earlier version is moved aside, not refused


class _Outdated(Exception):
    """The file has the tables of an earlier version."""


class DatabaseFile:
    """An open database: opened where it is created, then used by one thread at a time.

    The constructor raises ConfigError, or BusdError if the disk is full.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path = path
        self._layout = layout
        self._db: sqlite3.Connection | None = None
        self._inode = 0
        try:
            self.open()
        except (OSError, sqlite3.Error) as problem:
            # A full disk is not a configuration error: the service manager should try again.
            kind = BusdError if is_of_disk(problem) else ConfigError
            raise kind(self._fault(getattr(problem, "strerror", None) or problem)) from None

    # What subclasses may define

    def prepare(self, db: sqlite3.Connection) -> None:
        """Prepare a new connection; its tables are there."""

    def on_moved(self, aside: str, problem: str) -> None:
        """Report that the file was moved aside."""

    def on_lost(self) -> None:
        """Report that somebody has deleted the file; a new one is created."""

    # Use

    def open(self) -> sqlite3.Connection:
        """Return the database; open it again if it was closed, or deleted by somebody else."""
        if self._db:
            if self._is_in_place():
                return self._db
            self.on_lost()
            self.close()
        try:
            self._db = self._connect()
        except _Outdated:
            self.move_aside("an earlier busd wrote it; SQL can still read it", "old")
            self._db = self._connect()
        except sqlite3.DatabaseError as problem:
            if not is_damage(problem):
                raise
            self.move_aside(str(problem))
            self._db = self._connect()
        self._inode = self.path.stat().st_ino
        return self._db

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit what is written in the block, or roll it back if it raises an exception."""
        db = self.open()
        try:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")
        except BaseException:
            self.roll_back()
            raise

    def roll_back(self) -> None:
        """End a transaction that has failed, unless SQLite has done so."""
        if self._db and self._db.in_transaction:
            try:
                self._db.execute("ROLLBACK")
            except sqlite3.Error:
                self.close()

    def check(self) -> None:
        """Check every page; move the file aside if it is damaged."""
        # It may be interrupted, or unreadable for now: the next transaction will show.
        with contextlib.suppress(sqlite3.Error, OSError):
            if problem := _find_damage(self.open()):
                self.move_aside(problem)

    def move_aside(self, problem: str, kind: str = "corrupt") -> None:
        """Rename the file, so that it can be examined; the next use creates a new one."""
        self.close()
        aside = f"{self.path}.{kind}-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        for suffix in _SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self.path}{suffix}").rename(f"{aside}{suffix}")
        self.on_moved(aside, problem)

    def interrupt(self) -> None:
        """Abort a statement that another thread waits for."""
        if self._db:
            self._db.interrupt()

    def close(self) -> None:
        """Close the database. It is opened again if it is used."""
        db, self._db = self._db, None
        if db:
            with contextlib.suppress(sqlite3.Error):  # a full disk: the rest stays in the WAL
                db.close()

    def _is_in_place(self) -> bool:
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def _connect(self) -> sqlite3.Connection:
        for suffix in _SUFFIXES:
            refuse_link(Path(f"{self.path}{suffix}"))  # SQLite would follow it
        _make_private(self.path)
        db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            self._set_up(db)
            self.prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _set_up(self, db: sqlite3.Connection) -> None:
        layout = self._layout
        is_new = not read_number(db, "SELECT count(*) FROM sqlite_master")
        if not is_new:
            self._check_kind(db)
        elif layout.can_shrink:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL").fetchall()
        db.execute(f"PRAGMA synchronous = {'FULL' if layout.is_synced else 'NORMAL'}")
        db.execute("PRAGMA wal_autocheckpoint = 4096").fetchall()
        db.execute(f"PRAGMA journal_size_limit = {32 * 1024 * 1024}").fetchall()
        if is_new:
            kind = f"PRAGMA application_id = {layout.application_id};"
            kind += f"PRAGMA user_version = {layout.version};"
            db.executescript(f"BEGIN; {layout.tables}; {kind} COMMIT;")

    def _check_kind(self, db: sqlite3.Connection) -> None:
        layout = self._layout
        if read_pragma(db, "application_id") != layout.application_id:
            raise ConfigError(self._fault("it holds something else; move it away"))
        version = read_pragma(db, "user_version")
        if version < layout.version and layout.replaces_older:
            raise _Outdated
        if version != layout.version:
            words = f"its schema is {version}, this one knows {layout.version}"
            reason = f"another version of busd wrote it ({words}); install that, or move it away"
            raise ConfigError(self._fault(reason))

    def _fault(self, reason: object) -> str:
        return f"cannot open the {self._layout.contents} {self.path}: {reason}"


def is_damage(problem: Exception) -> bool:
    """Return whether the file itself is damaged, as opposed to an attempt to use it."""
    return _code(problem) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_of_disk(problem: Exception) -> bool:
    """Return whether the disk is full or fails."""
    is_full = isinstance(problem, OSError) and problem.errno == errno.ENOSPC
    return is_full or _code(problem) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def read_pragma(db: sqlite3.Connection, name: str) -> int:
    """Return the value of a numeric pragma."""
    return read_number(db, f"PRAGMA {name}")


def read_number(db: sqlite3.Connection, query: str) -> int:
    """Return the number that a query finds, or 0 if it finds none."""
    row: tuple[int | None] = db.execute(query).fetchone() or (None,)
    return row[0] or 0


def _code(problem: Exception) -> int:
    code: int = getattr(problem, "sqlite_errorcode", 0)
    return code & 0xFF


def _find_damage(db: sqlite3.Connection) -> str:
    """Check every page; return what is wrong, or "" if nothing is."""
    try:
        found: str = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as problem:
        if not is_damage(problem):
            raise
        return str(problem)
    return "" if found == "ok" else found.splitlines()[-1]


def _make_private(path: Path) -> None:
    """Create the file, and its directory if needed, for this user only, whatever the umask."""
    if not path.parent.is_dir():
        path.parent.mkdir(mode=0o700, parents=True)
        path.parent.chmod(0o700)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    # By name: opening and closing a database file would drop the locks this process has on it.
    path.chmod(0o600)
