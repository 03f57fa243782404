"""The file of the activity log: an SQLite database of blocks of deliveries (`blocks`).

A delivery in flight is a block of its own. When the delivery ends, that block is deleted and the
outcome is written with the batch, so that ended deliveries are in the order of their writing.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from busd.database import DatabaseFile, read_number
from busd.journal.blocks import (
    LAYOUT,
    POSITIONS,
    UNENCODABLE,
    RecordBatch,
    encodable,
    encode_blocks,
)
from busd.journal.retention import has_tidied
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


class JournalFile(DatabaseFile):
    """The open database: opened where it is created, then used by one thread."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._last_id = 0
        self._last_open_call = 0
        self._in_flight: dict[tuple[int, str], list[int]] = {}  # call, peer -> ids
        super().__init__(path, LAYOUT)

    def prepare(self, db: sqlite3.Connection) -> None:
        db.execute(_SET_LOST, (_STATUS,))
        self._last_id = read_number(db, "SELECT last_id FROM block ORDER BY id DESC LIMIT 1")
        self._in_flight.clear()

    def on_moved(self, aside: str, problem: str) -> None:
        log.warning("journal.moved_aside", path=str(self.path), to=aside, problem=problem)

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
        self.open()  # a new file has nothing in flight
        first_id = max(self._last_id + 1, int(self._clock() * 1e6))
        last_open = self._last_open_call
        ended = self._take((r.call, r.peer) for r in batch.records if r.call <= last_open)
        lost = self._take(batch.lost)
        try:
            with self.transaction() as db:
                if ended:
                    db.execute(_DELETE, (_ids(ended),))
                if lost:
                    db.execute(_SET_SOME_LOST, (_STATUS, _ids(lost)))
                next_id = self._insert(db, batch, first_id)
        except BaseException:
            self._put_back(ended + lost)
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
            if numbers := self._in_flight.get(key):
                taken.append((key, numbers.pop()))
                if not numbers:
                    del self._in_flight[key]
        return taken

    def _put_back(self, taken: list[tuple[tuple[int, str], int]]) -> None:
        for key, number in taken:
            self._in_flight.setdefault(key, []).append(number)

    # Tidying

    def tidy(self, settings: JournalSettings) -> bool:
        """Delete a little towards the retention limits; return False if they are met."""
        return has_tidied(self.open(), settings, self._clock())


def _ids(taken: list[tuple[tuple[int, str], int]]) -> str:
    """Return the ids of what was taken, as JSON."""
    return str([number for _, number in taken])
