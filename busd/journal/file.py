"""The file of the activity log: an SQLite database of blocks of deliveries (`blocks`).

A delivery in flight is a block of its own. When the delivery ends, that block is deleted and the
outcome is written with the batch, so that ended deliveries are in the order of their writing.
"""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from busd.errors import BusdError, ConfigError
from busd.journal.blocks import (
    APPLICATION_ID,
    POSITIONS,
    SCHEMA,
    SCHEMA_VERSION,
    UNENCODABLE,
    RecordBatch,
    encodable,
    encode_blocks,
)
from busd.journal.database import (
    connect_private,
    find_damage,
    is_damage,
    is_of_disk,
    rename_aside,
)
from busd.journal.retention import has_tidied, read_number, read_pragma
from busd.journal.settings import JournalSettings
from busd.rpc.envelope import encode

log = structlog.get_logger("busd.journal")

_INSERT = "INSERT INTO block VALUES (?1, ?1 + ?2 - 1, ?3, 0, CAST(?4 AS TEXT))"
# One statement for all of them: SQLite releases the interpreter lock during each statement, and
# acquiring it again from a busy loop takes longer than the work itself.
_INSERT_IN_FLIGHT = """
INSERT INTO block
SELECT ?1 + key, ?1 + key, ?2, 1, json_array(json(value)) FROM json_each(CAST(?3 AS TEXT))
"""
_DELETE = "DELETE FROM block WHERE id IN (SELECT value FROM json_each(?))"
_AMONG = "id IN (SELECT value FROM json_each(?2))"
_SET_LOST = """
UPDATE block SET is_in_flight = 0, deliveries = json_replace(deliveries, ?1, 'lost')
WHERE is_in_flight
"""
_SET_SOME_LOST = f"{_SET_LOST} AND {_AMONG}"
_STATUS = f"$[0][{POSITIONS['status']}]"


class _Outdated(Exception):
    """The file has the tables of an earlier version."""


class JournalFile:
    """The open database: opened where it is created, then used by one thread."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._db: sqlite3.Connection | None = None
        self._inode = 0
        self._last_id = 0
        self._last_open_call = 0
        self._open: dict[tuple[int, str], list[int]] = {}  # call, peer -> ids in flight
        try:
            self.open()
        except OSError as problem:
            kind = BusdError if problem.errno == errno.ENOSPC else ConfigError
            raise kind(f"cannot open the activity log {path}: {problem.strerror}") from None
        except sqlite3.Error as problem:
            # A full disk is not a configuration error: the service manager should try again.
            kind = BusdError if is_of_disk(problem) else ConfigError
            raise kind(f"cannot open the activity log {path}: {problem}") from None

    # Opening and closing

    def open(self) -> sqlite3.Connection:
        """Return the database; open it again if it was closed, or deleted by somebody else."""
        if self._db and self._is_in_place():
            return self._db
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

    def close(self) -> None:
        db, self._db = self._db, None
        if db:
            with contextlib.suppress(sqlite3.Error):  # a full disk: the rest stays in the WAL
                db.close()

    def interrupt(self) -> None:
        """Abort a statement that another thread waits for."""
        if self._db:
            self._db.interrupt()

    def check(self) -> str:
        """Check every page; return what is wrong, or "" if nothing is."""
        return find_damage(self.open())

    def move_aside(self, problem: str, kind: str = "corrupt") -> None:
        """Rename the file, so that it can be examined; the next write creates a new one."""
        self.close()
        aside = rename_aside(self.path, kind)
        log.warning("journal.moved_aside", path=str(self.path), to=aside, problem=problem)

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
        else:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL").fetchall()
        # If the daemon dies, nothing written is lost; if the power fails, the last moments are.
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA wal_autocheckpoint = 4096").fetchall()
        db.execute(f"PRAGMA journal_size_limit = {32 * 1024 * 1024}").fetchall()
        if is_new:
            db.executescript(SCHEMA)
        db.execute(_SET_LOST, (_STATUS,))
        self._last_id = read_number(db, "SELECT last_id FROM block ORDER BY id DESC LIMIT 1")
        self._open.clear()

    def _check_kind(self, db: sqlite3.Connection) -> None:
        if read_pragma(db, "application_id") != APPLICATION_ID:
            raise ConfigError(f"{self.path} is not an activity log of busd; move it away")
        version = read_pragma(db, "user_version")
        if version < SCHEMA_VERSION:
            raise _Outdated
        if version > SCHEMA_VERSION:
            raise ConfigError(
                f"the activity log {self.path} was written by a newer busd (its schema is "
                f"{version}, this one knows {SCHEMA_VERSION}): upgrade, or move it away"
            )

    # Writing

    def write(self, batch: RecordBatch) -> int:
        """Write a batch in one transaction; return how many records cannot be written at all."""
        try:
            self._write(batch)
        except UNENCODABLE:
            records, in_flight = encodable(batch.records), encodable(batch.in_flight)
            self._write(RecordBatch(records, batch.wall_offset, in_flight, batch.lost))
            return len(batch.records) - len(records)
        return 0

    def _write(self, batch: RecordBatch) -> None:
        db = self.open()
        first_id = max(self._last_id + 1, int(self._clock() * 1e6))
        last_open = self._last_open_call
        ended = self._take((r.call, r.peer) for r in batch.records if r.call <= last_open)
        lost = self._take(batch.lost)
        try:
            db.execute("BEGIN IMMEDIATE")
            if ended:
                db.execute(_DELETE, (_ids(ended),))
            if lost:
                db.execute(_SET_SOME_LOST, (_STATUS, _ids(lost)))
            next_id = self._insert(db, batch, first_id)
            db.execute("COMMIT")
        except BaseException:
            self._put_back(ended + lost)
            if db.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
            raise
        self._last_id = next_id - 1
        opened = enumerate(batch.in_flight, first_id)
        self._put_back([((record.call, record.peer), number) for number, record in opened])
        self._last_open_call = max([last_open, *(record.call for record in batch.in_flight)])

    def _insert(self, db: sqlite3.Connection, batch: RecordBatch, next_id: int) -> int:
        """Insert a batch, beginning with id `next_id`; return the next one that is free."""
        if batch.in_flight:
            values = next_id, batch.wall_offset, encode(batch.in_flight)
            db.execute(_INSERT_IN_FLIGHT, values)
            next_id += len(batch.in_flight)
        for count, block in encode_blocks(batch.records):
            db.execute(_INSERT, (next_id, count, batch.wall_offset, block))
            next_id += count
        return next_id

    def _take(self, keys: Iterable[tuple[int, str]]) -> list[tuple[tuple[int, str], int]]:
        """Remove and return the ids in flight of deliveries that have ended."""
        taken = []
        for key in keys:
            if numbers := self._open.get(key):
                taken.append((key, numbers.pop()))
                if not numbers:
                    del self._open[key]
        return taken

    def _put_back(self, taken: list[tuple[tuple[int, str], int]]) -> None:
        for key, number in taken:
            self._open.setdefault(key, []).append(number)

    # Tidying

    def tidy(self, settings: JournalSettings) -> bool:
        """Delete a little towards the retention limits; return False if they are met."""
        return has_tidied(self.open(), settings, self._clock())


def _ids(taken: list[tuple[tuple[int, str], int]]) -> str:
    """Return the ids of what was taken, as JSON."""
    return str([number for _, number in taken])
