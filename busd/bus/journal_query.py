"""Reading the activity log: the life of one message, and the latest deliveries.

These functions wait for the disk: call them from a worker thread. They see what is written, which
is everything but the last moments (`Journal.pump` and `JournalStore.wait_until_written` bring
those in too), and they never disturb the writer.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any  # what a column holds

import msgspec
from msgspec import field

from busd.bus.address import split_glob
from busd.bus.journal import Status
from busd.errors import ConfigError

_MAX_TRACED_ROWS = 10_000  # an id may have been used any number of times
_LAST_ID = 2**63 - 1  # the largest that SQLite has
_LAST_SECOND = 253_402_300_799.0  # of the year 9999, the last that has a name
# What an attempt as a whole is called: the first of these that one of its deliveries is.
_WORST_FIRST: tuple[Status, ...] = ("lost", "in flight", "failed", "kept", "no route", "ok")


class DeliveryRecord(msgspec.Struct, rename="camel", frozen=True):
    """What became of a message at one addressee; `ms` is the time that it took to answer."""

    peer: str
    status: Status
    error: str | None
    process_start: str | None
    process_finish: str | None
    ms: float | None


class Attempt(msgspec.Struct, rename="camel", frozen=True):
    """One `sendMessage`; `ms` is the time from its start until its sender had the answer."""

    message_id: str
    rpc_id: str | None
    sender: str = field(name="from")
    to: str
    status: Status
    send_start: str
    send_finish: str | None
    ms: float | None
    payload: str | None
    deliveries: list[DeliveryRecord]


class LogEntry(msgspec.Struct, rename="camel", frozen=True):
    """One delivery as a line of the log; `id` grows from line to line."""

    id: int
    ts: str
    message_id: str
    rpc_id: str | None
    sender: str = field(name="from")
    to: str
    peer: str | None
    status: Status
    error: str | None
    ms: float | None
    payload: str | None


class _Row(msgspec.Struct, array_like=True):
    """A row of the view `deliveries`, in the order of `_SELECT`; its times are microseconds."""

    id: int
    message_id: str
    rpc_id: str | None
    sender: str
    to: str
    peer: str
    send_start: int
    process_start: int | None
    process_finish: int | None
    send_finish: int | None
    status: Status
    error: str | None
    payload: str | None

    @property
    def addressee(self) -> str | None:
        """Give who got the message, if anybody did."""
        return None if self.status in ("no route", "kept") else self.peer or self.to

    def time_text(self, after: int | None) -> str | None:
        """Give the time so many microseconds after send_start."""
        return None if after is None else _time_text(self.send_start + after)


_SELECT = """
SELECT id, message_id, nullif(CAST(rpc_id AS TEXT), ''), sender, to_address, peer, send_start,
    process_start, process_finish, send_finish, status, nullif(error, ''), nullif(payload, '')
FROM deliveries WHERE
"""


def trace(path: Path, message_id: str) -> list[Attempt]:
    """Return the attempts to send a message, the earliest first, as far as there is room for them.

    Raises ConfigError if there is no log.
    """
    rows = _select(
        path,
        f"{_SELECT} message_id = ? ORDER BY send_start, is_first DESC, id LIMIT ?",
        (message_id, _MAX_TRACED_ROWS),
    )
    # All deliveries of one sendMessage have one send_start, to the microsecond.
    return [_attempt(list(group)) for _, group in groupby(rows, lambda row: row.send_start)]


def count_attempts(path: Path, message_id: str) -> int:
    """Return how many attempts to send a message are in the log."""
    query = "SELECT count(DISTINCT send_start) FROM deliveries WHERE message_id = ?"
    [(count,)] = _fetch(path, query, (message_id,))
    return int(count)


def tail(
    path: Path,
    *,
    to: str | None = None,
    sender: str | None = None,
    since: float | None = None,
    after_id: int | None = None,
    limit: int = 100,
) -> list[LogEntry]:
    """Give the latest deliveries that match, in the order in which they were written.

    `to` and `sender` are patterns, `since` is in seconds since 1970. With `after_id` it gives the
    next ones after that id instead of the latest, and only those that have ended: a delivery that
    is in flight gets a new id when it ends, so whoever follows sees each once and misses none.
    """
    conditions = ["id > :after", "to_address GLOB :to", "sender GLOB :sender"]
    if after_id is not None:
        conditions.append("status <> 'in flight'")
    values = {
        "after": _first_id(since, after_id) - 1,
        "to": glob_of(to or "*"),
        "sender": glob_of(sender or "*"),
        "limit": limit,
    }
    order = "DESC" if after_id is None else "ASC"
    query = f"{_SELECT} {' AND '.join(conditions)} ORDER BY id {order} LIMIT :limit"
    found = [_entry(row) for row in _select(path, query, values)]
    return found[::-1] if after_id is None else found


def _first_id(since: float | None, after_id: int | None) -> int:
    """Return the first id that a reader wants, whatever it said; ids are microseconds."""
    moment = int(min(max(since or 0.0, 0.0), _LAST_SECOND) * 1e6)
    return min(max(moment, (after_id or 0) + 1), _LAST_ID)


def glob_of(pattern: str) -> str:
    """Return the pattern as SQLite's GLOB reads it, whose classes are negated by `^`."""
    return "".join(map(_piece_of, split_glob(pattern)))


def _piece_of(piece: str) -> str:
    if piece == "[":
        return "[[]"
    if piece[0] != "[":
        return piece
    body = piece[1:-1]
    if body.startswith("!"):
        return f"[^{body[1:]}]"
    if body.startswith("^"):
        return f"[{body[1:]}^]" if body != "^" else "^"
    return piece


def _select(path: Path, query: str, values: tuple[object, ...] | dict[str, object]) -> list[_Row]:
    return msgspec.convert(_fetch(path, query, values), list[_Row])


def _fetch(
    path: Path, query: str, values: tuple[object, ...] | dict[str, object]
) -> list[tuple[Any, ...]]:
    try:
        # as_uri quotes what would otherwise be options
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            return db.execute(query, values).fetchall()
    except sqlite3.Error as problem:
        raise ConfigError(f"cannot read the activity log {path}: {problem}") from None


def _attempt(rows: list[_Row]) -> Attempt:
    first = rows[0]
    finish = max((row.send_finish for row in rows if row.send_finish is not None), default=None)
    return Attempt(
        message_id=first.message_id,
        rpc_id=first.rpc_id,
        sender=first.sender,
        to=first.to,
        status=min((row.status for row in rows), key=_WORST_FIRST.index),
        send_start=_time_text(first.send_start),
        send_finish=first.time_text(finish),
        ms=_ms(0, finish),
        payload=first.payload,
        deliveries=[_delivery(row, row.addressee) for row in rows if row.addressee],
    )


def _delivery(row: _Row, peer: str) -> DeliveryRecord:
    return DeliveryRecord(
        peer=peer,
        status=row.status,
        error=row.error,
        process_start=row.time_text(row.process_start),
        process_finish=row.time_text(row.process_finish),
        ms=_ms(row.process_start, row.process_finish),
    )


def _entry(row: _Row) -> LogEntry:
    finish = row.process_finish if row.send_finish is None else row.send_finish
    return LogEntry(
        id=row.id,
        ts=_time_text(row.send_start),
        message_id=row.message_id,
        rpc_id=row.rpc_id,
        sender=row.sender,
        to=row.to,
        peer=row.addressee,
        status=row.status,
        error=row.error,
        ms=_ms(0, finish),
        payload=row.payload,
    )


def _time_text(microseconds: int) -> str:
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:06d}Z"


def _ms(start: int | None, finish: int | None) -> float | None:
    return None if start is None or finish is None else (finish - start) / 1000
