"""The SQLite file of the sessions as a file: private, no link, and moved aside when damaged."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import structlog

log = structlog.get_logger()

_SUFFIXES = ("-wal", "-shm", "")


def make_private(path: Path) -> None:
    """Create the file if it is missing; raise OSError if a link is in its place.

    SQLite would follow the link, and gives its other files the rights of this one.
    """
    for suffix in _SUFFIXES:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        flags |= 0 if suffix else os.O_CREAT
        with contextlib.suppress(FileNotFoundError):
            os.close(os.open(f"{path}{suffix}", flags, 0o600))


def check_whole(db: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError if a page of the file is damaged."""
    found: str = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        problem = sqlite3.DatabaseError(found.splitlines()[-1])
        problem.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise problem


def is_damage(problem: BaseException) -> bool:
    """Return whether the file itself is damaged, and not just the attempt to use it."""
    code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def move_aside(path: Path, problem: BaseException) -> None:
    """Keep a damaged file for whoever wants to look into it; the next write makes a new one."""
    aside = f"{path}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    for suffix in _SUFFIXES:
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
    log.warning("sessions.moved_aside", path=str(path), to=aside, problem=str(problem))
