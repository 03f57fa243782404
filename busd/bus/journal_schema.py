"""The shape of the activity log: its table, its view, and how rows get in.

Anybody may read the view `activity_log`; the table `delivery` is ours.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from msgspec import UNSET

from busd.bus.journal import MAX_ERROR_CHARACTERS, PLAIN_WIDTH, Batch, Row

SCHEMA_VERSION = 1
APPLICATION_ID = 0x62757364  # "busd": tells our file from somebody else's

# `id` is the time of writing in microseconds since 1970, moved on where it would not be unique:
# so the primary key is the index by time, grows, and never comes twice, not even after a restart.
# The three later times are microseconds after send_start: 2 or 3 bytes each instead of 8. '' is
# "none": to turn it into NULL is the reader's work, not the writer's. There are no constraints:
# one odd row must not keep its batch from being written.
_TABLE = """
CREATE TABLE delivery (
    id INTEGER PRIMARY KEY,
    message_id TEXT,
    rpc_id,  -- text or a number, as the sender had it
    sender TEXT,
    to_address TEXT,
    peer TEXT,  -- '' also if it is to_address
    is_first INTEGER,  -- of the rows of its message
    send_start INTEGER,
    process_start INTEGER,
    process_finish INTEGER,
    send_finish INTEGER,
    status TEXT,
    error TEXT,
    payload TEXT
);
CREATE INDEX delivery_by_message_id ON delivery (message_id);
CREATE INDEX delivery_in_flight ON delivery (id) WHERE status = 'in flight';
"""

# An event's `id` is that of its delivery. Four times that, plus 0 to 3, would be its own, but then
# SQLite could not use the primary key: `order by id desc limit 20` would read the whole log. For
# the same reason a column has the same type in all four parts.
_EVENT = """
SELECT id, strftime('%Y-%m-%dT%H:%M:%S', (send_start + {after}) / 1000000, 'unixepoch')
        || printf('.%06dZ', (send_start + {after}) % 1000000),
    '{event}', message_id, nullif(CAST(rpc_id AS TEXT), ''), {actor}, to_address, status,
    nullif({payload}, ''), nullif({error}, '')
FROM delivery WHERE {condition}
"""
_PEER = "CAST(CASE peer WHEN '' THEN to_address ELSE peer END AS TEXT)"
_EVENTS = (
    # event, how long after send_start, whether at all, who, payload, error
    ("send_start", "0", "is_first", "sender", "payload", "NULL"),
    ("process_start", "process_start", "process_start NOTNULL", _PEER, "NULL", "NULL"),
    ("process_finish", "process_finish", "process_finish NOTNULL", _PEER, "NULL", "error"),
    ("send_finish", "send_finish", "send_finish NOTNULL", "sender", "NULL", "error"),
)
_VIEW = (
    "CREATE VIEW activity_log "
    "(id, ts, event, message_id, rpc_id, actor, to_address, status, payload_json, error) AS "
) + "UNION ALL".join(
    _EVENT.format(
        event=event, after=after, condition=condition, actor=actor, payload=payload, error=error
    )
    for event, after, condition, actor, payload, error in _EVENTS
)
SCHEMA = f"""
BEGIN;
{_TABLE}{_VIEW};
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""

# Many rows per statement: SQLite lets go of the interpreter while it runs one, and with a row
# each this thread would have to ask a busy loop for it 128 times as often.
_COUNTS = (128, 16, 1)
_ANY_ROW = """
(?1 + {i}, ?{0}, ?{1}, ?{2}, ?{3}, CASE ?{4} WHEN ?{3} THEN '' ELSE ?{4} END, ?{5},
    CAST(?{6} * 1e6 + 0.5 AS INTEGER),
    CASE WHEN ?{7} THEN CAST((?{7} - ?{6}) * 1e6 + 0.5 AS INTEGER) END,
    CASE WHEN ?{8} THEN CAST((?{8} - ?{6}) * 1e6 + 0.5 AS INTEGER) END,
    CASE WHEN ?{9} THEN CAST((?{9} - ?{6}) * 1e6 + 0.5 AS INTEGER) END,
    ?{10}, ?{11}, ?{12})
"""
# What most rows are like: to bind 8 values instead of 13 takes 1.9 µs per row instead of 3.4. The
# first value, the call, is bound and not used: to leave it out would mean to copy the list.
_PLAIN_ROW = """
(?1 + {i}, ?{1}, ?{2}, ?{3}, ?{4}, CASE ?{5} WHEN ?{4} THEN '' ELSE ?{5} END, 1,
    CAST((?{6} + ?2) * 1e6 + 0.5 AS INTEGER), 0, CAST((?{7} - ?{6}) * 1e6 + 0.5 AS INTEGER),
    CAST((?{7} - ?{6}) * 1e6 + 0.5 AS INTEGER), 'ok', '', '')
"""
_ANY_WIDTH = 13


def _inserts(row: str, width: int) -> dict[int, str]:
    """Give the statements that insert 128, 16 and 1 rows.

    The first parameter is the first id, the second what is to be added to times.
    """

    def numbered(i: int) -> str:
        return row.format(*range(3 + i * width, 3 + i * width + width), i=i)

    return {n: "INSERT INTO delivery VALUES" + ",".join(map(numbered, range(n))) for n in _COUNTS}


_INSERT_ANY = _inserts(_ANY_ROW, _ANY_WIDTH)
_INSERT_PLAIN = _inserts(_PLAIN_ROW, PLAIN_WIDTH)
# Takes as many values as one row has: finds out whether SQLite can take them.
TRY_TO_BIND = f"SELECT {','.join('?' * _ANY_WIDTH)}"


def insert_rows(db: sqlite3.Connection, rows: list[Row], first_id: int) -> int:
    """Insert rows under ids from `first_id` on; gives the next one that is free."""
    values: list[object] = []
    for row in rows:
        append_values(values, row)
    return _execute(db, _INSERT_ANY, _ANY_WIDTH, values, first_id, 0.0)


def insert_plain(db: sqlite3.Connection, batch: Batch, first_id: int) -> int:
    """Insert the deliveries of a batch that went as most do."""
    return _execute(db, _INSERT_PLAIN, PLAIN_WIDTH, batch.plain, first_id, batch.wall_offset)


def plain_as_rows(batch: Batch) -> list[Row]:
    """Give the rows that the flat list of a batch stands for."""
    plain: list[Any] = batch.plain  # a Plain's values each
    rows: list[Row] = []
    for at in range(0, len(plain), PLAIN_WIDTH):
        *names, started, ended = plain[at : at + PLAIN_WIDTH]
        began, finished = started + batch.wall_offset, ended + batch.wall_offset
        rows.append((*names, 1, began, began, finished, finished, "ok", "", ""))
    return rows


def append_values(values: list[object], row: Row) -> None:
    """Add what `_ANY_ROW` takes for a row."""
    _, message_id, rpc_id, sender, to, peer, is_first, t0, t1, t2, t3, status, error, payload = row
    text = payload if isinstance(payload, str) else str(payload, "utf-8")
    named = "" if rpc_id is UNSET or rpc_id is None else rpc_id
    values += (message_id, named, sender, to, peer, is_first, t0, t1, t2, t3)
    values += (status, error[:MAX_ERROR_CHARACTERS], text)


def _execute(
    db: sqlite3.Connection,
    inserts: dict[int, str],
    width: int,
    values: list[object],
    next_id: int,
    offset: float,
) -> int:
    start = 0
    for count, statement in inserts.items():
        size = count * width
        while len(values) - start >= size:
            db.execute(statement, [next_id, offset, *values[start : start + size]])
            next_id += count
            start += size
    return next_id
