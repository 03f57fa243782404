"""How deliveries get into the tables of the activity log."""

from __future__ import annotations

import sqlite3
from typing import Any

from msgspec import UNSET

from busd.bus.journal import MAX_ERROR_CHARACTERS, PLAIN_WIDTH, Batch, Row, Way

# Many rows per statement: SQLite lets go of the interpreter while it runs one, and with a row
# each this thread would have to ask a busy loop for it 128 times as often.
_COUNTS = (128, 16, 1)
_INSERT = """
INSERT INTO delivery (section, message_id, rpc_id, way, is_first,
    send_start, process_start, process_finish, send_finish, status, error, payload) VALUES
"""
# The first three parameters are the first id, the section, and what is to be added to times.
_ANY_ROW = """
?2, ?{0}, ?{1}, ?{2}, ?{3},
    CAST((?{4} + ?3) * 1e6 + 0.5 AS INTEGER),
    CASE WHEN ?{5} THEN CAST((?{5} - ?{4}) * 1e6 + 0.5 AS INTEGER) END,
    CASE WHEN ?{6} THEN CAST((?{6} - ?{4}) * 1e6 + 0.5 AS INTEGER) END,
    CASE WHEN ?{7} THEN CAST((?{7} - ?{4}) * 1e6 + 0.5 AS INTEGER) END,
    ?{8}, ?{9}, ?{10}
"""
_ANY_WIDTH = 11
# What most rows are like: to bind 6 values instead of 11 is half the work. The first, the call, is
# bound and not used: to leave it out would take longer.
_PLAIN_ROW = """
?2, ?{1}, ?{2}, ?{3}, 1, CAST((?{4} + ?3) * 1e6 + 0.5 AS INTEGER), 0,
    CAST((?{5} - ?{4}) * 1e6 + 0.5 AS INTEGER), CAST((?{5} - ?{4}) * 1e6 + 0.5 AS INTEGER),
    'ok', '', ''
"""


def _inserts(row: str, width: int) -> dict[int, str]:
    """Give the statements that insert 128, 16 and 1 rows."""

    def numbered(i: int) -> str:
        return row.format(*range(4 + i * width, 4 + i * width + width))

    # Only a row that comes alone says its id, the others get the next ones: a tenth less work,
    # because SQLite need not look whether the id is free.
    inserts = {n: f"{_INSERT}({'),('.join(map(numbered, range(n)))})" for n in _COUNTS}
    return inserts | {1: f"{_INSERT.replace('(', '(id, ')}(?1, {numbered(0)})"}


_INSERT_ANY = _inserts(_ANY_ROW, _ANY_WIDTH)
_INSERT_PLAIN = _inserts(_PLAIN_ROW, PLAIN_WIDTH)
_INSERT_WAY = "INSERT INTO way VALUES (?, ?, ?, ?, ?)"
# In the order of the message ids each entry goes behind the one before, which costs half.
_INDEX = """
INSERT INTO by_message_id
SELECT section, message_id, id FROM delivery WHERE id >= ? ORDER BY message_id
"""
# Takes as many values as one row has: finds out whether SQLite can take them.
_TRY_TO_BIND = f"SELECT {','.join('?' * (_ANY_WIDTH + 3))}"
# What a value that SQLite cannot take raises: text that is no Unicode, a number over 64 bits, …
UNBINDABLE = (
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    sqlite3.DataError,
    OverflowError,
    TypeError,
    ValueError,
)


class Section:
    """The part of the log that is being written; of no use any more once a write has failed."""

    def __init__(self, number: int, began: float) -> None:
        self.number = number
        self.began = began
        self.count = 0
        self._ways: dict[Way, int] = {}

    def insert(self, db: sqlite3.Connection, batch: Batch, first_id: int) -> int:
        """Insert a batch under ids from `first_id` on; gives the next one that is free."""
        next_id = self._insert_rows(db, batch.open_rows + batch.rows, first_id)
        next_id = self._insert_plain(db, batch, next_id)
        db.execute(_INDEX, (first_id,))
        self.count += next_id - first_id
        return next_id

    def _insert_rows(self, db: sqlite3.Connection, rows: list[Row], next_id: int) -> int:
        numbers = self._number(db, [row[3:6] for row in rows])
        values: list[object] = []
        for row, number in zip(rows, numbers, strict=True):
            values += _values(row, number)
        return self._execute(db, _INSERT_ANY, _ANY_WIDTH, values, next_id, 0.0)

    def _insert_plain(self, db: sqlite3.Connection, batch: Batch, next_id: int) -> int:
        values = batch.plain.copy()
        ways: list[Any] = values[3::PLAIN_WIDTH]
        values[3::PLAIN_WIDTH] = self._number(db, ways)
        return self._execute(db, _INSERT_PLAIN, PLAIN_WIDTH, values, next_id, batch.wall_offset)

    def _number(self, db: sqlite3.Connection, ways: list[Way]) -> list[int | None]:
        """Give the number of each way, and one to those that are new."""
        known = self._ways
        numbers = list(map(known.get, ways))
        if None not in numbers:
            return numbers
        new = set(ways).difference(known)
        known.update(zip(new, range(len(known), len(known) + len(new)), strict=True))
        db.executemany(_INSERT_WAY, [(self.number, known[way], *way) for way in new])
        return list(map(known.get, ways))

    def _execute(
        self,
        db: sqlite3.Connection,
        inserts: dict[int, str],
        width: int,
        values: list[object],
        next_id: int,
        offset: float,
    ) -> int:
        start = 0
        while start < len(values):
            left = (len(values) - start) // width
            count = next(n for n in _COUNTS if n <= left) if start else 1  # the first says its id
            end = start + count * width
            db.execute(inserts[count], [next_id, self.number, offset, *values[start:end]])
            next_id += count
            start = end
        return next_id


def bindable(db: sqlite3.Connection, rows: list[Row]) -> list[Row]:
    """Give the rows that SQLite can take; the id of a request may have more than 64 bits."""
    rows = [(*row[:2], str(row[2]), *row[3:]) if isinstance(row[2], int) else row for row in rows]
    return [row for row in rows if _can_bind(db, row)]


def plain_as_rows(batch: Batch) -> list[Row]:
    """Give the rows that the flat list of a batch stands for."""
    plain: list[Any] = batch.plain  # a Plain's values each
    rows: list[Row] = []
    for at in range(0, len(plain), PLAIN_WIDTH):
        *names, way, started, ended = plain[at : at + PLAIN_WIDTH]
        began, finished = started + batch.wall_offset, ended + batch.wall_offset
        rows.append((*names, *way, 1, began, began, finished, finished, "ok", "", ""))
    return rows


def _can_bind(db: sqlite3.Connection, row: Row) -> bool:
    try:
        db.execute(_TRY_TO_BIND, (*row[3:6], *_values(row, 0))).fetchone()
    except UNBINDABLE:
        return False
    return True


def _values(row: Row, way: int | None) -> tuple[object, ...]:
    """Give what `_ANY_ROW` takes for a row."""
    _, message_id, rpc_id, _, _, _, is_first, t0, t1, t2, t3, status, error, payload = row
    text = payload if isinstance(payload, str) else str(payload, "utf-8")
    named = "" if rpc_id is UNSET or rpc_id is None else rpc_id
    error = error[:MAX_ERROR_CHARACTERS]
    return (message_id, named, way, is_first, t0, t1, t2, t3, status, error, text)
