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
import sqlite3
from pathlib import Path
from typing import Any

import structlog

from busd.bus.mail import MailLimits, Totals
from busd.bus.mail_store import Operation
from busd.database import DatabaseFile, read_number
from busd.mail.engine import Engine
from busd.mail.state import EngineState, Sequence
from busd.mail.tables import LAYOUT, SqlTables

log = structlog.get_logger("busd.mail")


class MailFile(DatabaseFile):
    """The open database: opened where it is created, then used by one thread."""

    def __init__(self, path: Path, limits: MailLimits) -> None:
        self._state = EngineState(limits)
        self.has_written = False  # the last transaction has changed the file
        super().__init__(path, LAYOUT)

    @property
    def totals(self) -> Totals:
        return self._state.totals

    def write(self, operations: list[Operation[Any]], *, must_write: bool = False) -> list[Any]:
        """Execute operations in one transaction; return the outcome of each.

        If the transaction fails, raise OSError or sqlite3.Error; then nothing has changed. With
        `must_write`, it also fails if it changes nothing and the disk cannot be written.
        """
        db = self.open()
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
            self.roll_back()
            raise
        state.commit()
        self.has_written = db.total_changes != changes
        return outcomes

    # Opening and closing

    def prepare(self, db: sqlite3.Connection) -> None:
        reserved = read_number(db, "SELECT reserved FROM sequence")
        # Before any number is given out: this run may be killed.
        first, end = max(reserved, self._state.sequence.last), Sequence.BLOCK
        db.execute("UPDATE sequence SET reserved = ?", (first + end,))
        state = EngineState(self._state.limits, first, first + end)
        SqlTables(db).load(state)
        self._state = state

    def on_moved(self, aside: str, problem: str) -> None:
        log.error("mail.moved_aside", path=str(self.path), to=aside, problem=problem)

    def on_lost(self) -> None:
        totals = self._state.totals
        log.error("mail.file_lost", path=str(self.path), mail=totals.count, dead=totals.dead)

    def finish(self) -> None:
        """Close the database; record the last number, so that the next run goes on from there."""
        if self._db:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("UPDATE sequence SET reserved = ?", (self._state.sequence.last,))
        self.close()
