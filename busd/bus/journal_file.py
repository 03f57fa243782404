"""The file of the activity log: an SQLite database with one row per delivery.

The view `activity_log` shows the events of each row. While a delivery is open its row says
'in flight'; when it ends that row gives way to another, so what has ended stands in the order in
which it was written.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import structlog

from busd.bus.journal import Batch, JournalSettings, plain_keys
from busd.bus.journal_rows import UNBINDABLE, Section, bindable, plain_as_rows
from busd.bus.journal_schema import APPLICATION_ID, SCHEMA, SCHEMA_VERSION
from busd.errors import ConfigError
from busd.wire.plain_file import refuse_link

log = structlog.get_logger("busd.journal")

STEP_ROWS = 512  # deleted at once: 2–5 ms
STEP_PAGES = 128  # given back at once
DAY_SECONDS = 86_400
# A trace looks into each section, 1 µs each: 10 million deliveries are some 1,200 of them.
SECTION_ROWS = 8192
SECTION_SECONDS = DAY_SECONDS  # so that what is left in the index of an old delivery goes, too

_DELETE = "DELETE FROM delivery WHERE id IN (SELECT value FROM json_each(?))"
_FORGET = "UPDATE delivery SET status = 'lost' WHERE id IN (SELECT value FROM json_each(?))"
_DELETE_OLDEST = """
DELETE FROM delivery WHERE id <= (
    SELECT max(id) FROM (SELECT id FROM delivery WHERE id < ? ORDER BY id LIMIT ?))
"""


class _Outdated(Exception):
    """The file has the tables of an earlier version."""


class JournalFile:
    """The open database: opened by whoever makes it, from then on used by one thread."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._db: sqlite3.Connection | None = None
        self._inode = 0
        self._last_id = 0
        self._last_open_call = 0
        self._section: Section | None = None
        self._last_section = 0
        self._open: dict[tuple[int, str], list[int]] = {}  # call, addressee -> ids 'in flight'
        try:
            self.open()
        except OSError as problem:
            raise ConfigError(f"cannot open the activity log {path}: {problem.strerror}") from None
        except sqlite3.Error as problem:
            raise ConfigError(f"cannot open the activity log {path}: {problem}") from None

    # Opening and closing

    def open(self) -> sqlite3.Connection:
        """Give the database; opens it again if it was closed, or deleted behind our back."""
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
        """End a statement that another thread waits for."""
        if self._db:
            self._db.interrupt()

    def check(self) -> str:
        """Look at every page; gives what is wrong, or "" if nothing is."""
        try:
            found: str = self.open().execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.DatabaseError as problem:
            if not is_damage(problem):
                raise
            return str(problem)
        return "" if found == "ok" else found.splitlines()[-1]

    def move_aside(self, problem: str, kind: str = "corrupt") -> None:
        """Keep a file for whoever wants to look into it; the next write makes a new one."""
        self.close()
        aside = f"{self.path}.{kind}-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        for suffix in ("-wal", "-shm", ""):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self.path}{suffix}").rename(f"{aside}{suffix}")
        log.warning("journal.moved_aside", path=str(self.path), to=aside, problem=problem)

    def _is_in_place(self) -> bool:
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def _connect(self) -> sqlite3.Connection:
        for suffix in ("", "-wal", "-shm"):
            refuse_link(Path(f"{self.path}{suffix}"))  # SQLite would follow it
        _make_private(self.path)
        db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
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
        # If the daemon dies nothing written is lost; if the power goes the last moments are.
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA cache_size = -16384")  # KiB; helps with message ids that are random
        db.execute("PRAGMA wal_autocheckpoint = 4096").fetchall()
        db.execute(f"PRAGMA journal_size_limit = {32 * 1024 * 1024}").fetchall()
        if is_new:
            db.executescript(SCHEMA)
        db.execute("UPDATE delivery SET status = 'lost' WHERE status = 'in flight'")
        self._last_id = _number(db, "SELECT max(id) FROM delivery")
        self._section = None
        self._last_section = _number(db, "SELECT max(section) FROM way")
        self._open.clear()

    def _check_kind(self, db: sqlite3.Connection) -> None:
        if _pragma(db, "application_id") != APPLICATION_ID:
            raise ConfigError(f"{self.path} is not an activity log of busd; move it away")
        version = _pragma(db, "user_version")
        if version < SCHEMA_VERSION:
            raise _Outdated
        if version > SCHEMA_VERSION:
            raise ConfigError(
                f"the activity log {self.path} was written by a newer busd (its schema is "
                f"{version}, this one knows {SCHEMA_VERSION}): upgrade, or move it away"
            )

    # Writing

    def write(self, batch: Batch) -> int:
        """Write a batch in one transaction; gives how many of its rows cannot be written at all."""
        try:
            self._write(batch)
        except UNBINDABLE:
            db = self.open()
            rows = bindable(db, plain_as_rows(batch) + batch.rows)
            self._write(Batch([], 0.0, rows, bindable(db, batch.open_rows), batch.lost))
            return batch.ended - len(rows)
        return 0

    def _write(self, batch: Batch) -> None:
        db = self.open()
        rows, open_rows = batch.rows, batch.open_rows
        now = self._clock()
        first_id = max(self._last_id + 1, int(now * 1e6))
        ended = self._take((row[0], row[5]) for row in rows if row[0] <= self._last_open_call)
        if self._open and batch.plain:
            ended += self._take(plain_keys(batch.plain))
        forgotten = self._take(batch.lost)
        try:
            db.execute("BEGIN IMMEDIATE")
            if ended:
                db.execute(_DELETE, (str([number for _, number in ended]),))
            if forgotten:
                db.execute(_FORGET, (str([number for _, number in forgotten]),))
            next_id = self._current_section(now).insert(db, batch, first_id)
            db.execute("COMMIT")
        except BaseException:
            self._put_back(ended + forgotten)
            self._section = None
            if db.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
            raise
        self._last_id = next_id - 1
        self._put_back([((row[0], row[5]), id_) for id_, row in enumerate(open_rows, first_id)])
        self._last_open_call = max([self._last_open_call, *(row[0] for row in open_rows)])

    def _current_section(self, now: float) -> Section:
        section = self._section
        if not section or section.count >= SECTION_ROWS or now > section.began + SECTION_SECONDS:
            self._last_section += 1
            section = self._section = Section(self._last_section, now)
        return section

    def _take(self, keys: Iterable[tuple[int, str]]) -> list[tuple[tuple[int, str], int]]:
        """Take out the rows 'in flight' of deliveries that have ended."""
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
        """Take one small step towards the age and the size that are wanted; False if there."""
        db = self.open()
        # Never before 1970: SQLite's numbers have 64 bits.
        cutoff = int(max(self._clock() - settings.keep_days * DAY_SECONDS, 0.0) * 1e6)
        if db.execute(_DELETE_OLDEST, (cutoff, STEP_ROWS)).rowcount:
            return True
        pages, free = _pragma(db, "page_count"), _pragma(db, "freelist_count")
        limit = settings.max_bytes // _pragma(db, "page_size")
        # A little more than needed, so that the next rows find room without growing the file.
        is_full = pages > limit and pages - free > limit - limit // 32
        if is_full and db.execute(_DELETE_OLDEST, (self._last_id + 1, STEP_ROWS)).rowcount:
            return True
        if self._has_dropped_section(db):
            return True
        if free and (pages > limit or free > max(STEP_PAGES, pages // 8)):
            # As a script: execute() would stop after the first page.
            db.executescript(f"PRAGMA incremental_vacuum({STEP_PAGES})")
            return True
        return False

    def _has_dropped_section(self, db: sqlite3.Connection) -> bool:
        """Let go of the oldest section if none of its deliveries is left."""
        oldest = _number(db, "SELECT min(section) FROM way")
        first_used = _number(db, "SELECT section FROM delivery ORDER BY id LIMIT 1")
        if not oldest or oldest == first_used:
            return False
        if oldest == self._last_section:
            self._section = None  # the next delivery begins another one
        db.execute("DELETE FROM by_message_id WHERE section = ?", (oldest,))
        db.execute("DELETE FROM way WHERE section = ?", (oldest,))
        return True


def is_damage(problem: Exception) -> bool:
    """True if the file itself is broken, and not just the attempt to use it."""
    code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _make_private(path: Path) -> None:
    """Make the file, and its directory if need be, for this user only, whatever the umask."""
    if not path.parent.is_dir():
        path.parent.mkdir(mode=0o700, parents=True)
        path.parent.chmod(0o700)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    # By its name: to open and close a database file drops the locks that others here have on it.
    path.chmod(0o600)


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return _number(db, f"PRAGMA {name}")


def _number(db: sqlite3.Connection, query: str) -> int:
    """Give the number that a query gives, 0 if it gives none."""
    row: tuple[int | None] = db.execute(query).fetchone() or (None,)
    return row[0] or 0
