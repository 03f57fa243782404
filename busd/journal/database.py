"""SQLite files that only this user may read: opening them, moving damaged ones aside."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from busd.wire.plain_file import refuse_link


def connect_private(path: Path) -> sqlite3.Connection:
    """Open a database in autocommit mode, for one thread at a time; create it if needed."""
    for suffix in ("", "-wal", "-shm"):
        refuse_link(Path(f"{path}{suffix}"))  # SQLite would follow it
    _make_private(path)
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def rename_aside(path: Path, kind: str) -> str:
    """Rename a database that is closed, so that it can be examined; return its new name."""
    aside = f"{path}.{kind}-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    for suffix in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
    return aside


def find_damage(db: sqlite3.Connection) -> str:
    """Check every page; return what is wrong, or "" if nothing is."""
    try:
        found: str = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as problem:
        if not is_damage(problem):
            raise
        return str(problem)
    return "" if found == "ok" else found.splitlines()[-1]


def is_damage(problem: Exception) -> bool:
    """Return whether the file itself is damaged, as opposed to an attempt to use it."""
    code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_of_disk(problem: sqlite3.Error) -> bool:
    """Return whether the disk is full or fails."""
    code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def _make_private(path: Path) -> None:
    """Create the file, and its directory if needed, for this user only, whatever the umask."""
    if not path.parent.is_dir():
        path.parent.mkdir(mode=0o700, parents=True)
        path.parent.chmod(0o700)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    # By name: opening and closing a database file would drop the locks this process has on it.
    path.chmod(0o600)
