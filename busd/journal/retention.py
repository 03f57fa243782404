"""The retention limits of the activity log: whole blocks are deleted, the oldest first."""

from __future__ import annotations

import sqlite3

from busd.database import read_pragma
from busd.journal.settings import JournalSettings

STEP_DELIVERIES = 512  # deleted at once
STEP_PAGES = 128  # returned to the file system at once
DAY_SECONDS = 86_400

_OLDEST = "SELECT id, last_id FROM block WHERE id < ? ORDER BY id LIMIT ?"
_LAST_ID = 2**63 - 1  # the largest integer in SQLite


def has_tidied(db: sqlite3.Connection, settings: JournalSettings, now: float) -> bool:
    """Delete a little towards the limits of age and size; return False if they are met."""
    # Not before 1970: SQLite's integers have 64 bits.
    cutoff = int(max(now - settings.keep_days * DAY_SECONDS, 0.0) * 1e6)
    if _has_deleted(db, cutoff):
        return True
    pages, free = read_pragma(db, "page_count"), read_pragma(db, "freelist_count")
    limit = settings.max_bytes // read_pragma(db, "page_size")
    # A little more than needed, so that the next block does not make the file grow.
    is_full = pages > limit and pages - free > limit - limit // 32
    if is_full and _has_deleted(db, _LAST_ID):
        return True
    if free and (pages > limit or free > max(STEP_PAGES, pages // 8)):
        # As a script: execute() would stop after the first page.
        db.executescript(f"PRAGMA incremental_vacuum({STEP_PAGES})")
        return True
    return False


def _has_deleted(db: sqlite3.Connection, before: int) -> bool:
    """Delete some of the oldest blocks before an id; return False if there are none."""
    count, oldest = 0, db.execute(_OLDEST, (before, STEP_DELIVERIES)).fetchall()
    for first, last in oldest:
        count += last - first + 1
        if count >= STEP_DELIVERIES:
            break
    if oldest:
        db.execute("DELETE FROM block WHERE id <= ?", (first,))
    return bool(oldest)
