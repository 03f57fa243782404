"""Reading the activity log: the attempts to send one message, and the latest deliveries.

These functions wait for the disk: call them from a worker thread. They see everything that is
written, and never block the writer. To include the most recent deliveries, call `Journal.pump`
and `JournalWriter.wait_until_written` first.

SQLite unfolds the blocks, because it releases the interpreter lock meanwhile. It skips a block
that does not contain the wanted text (`instr`) before parsing it, which is 5 times as fast.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import takewhile
from pathlib import Path

import msgspec

from busd.bus.address import split_glob
from busd.bus.record import Record
from busd.errors import ConfigError
from busd.journal.blocks import POSITIONS
from busd.journal.entries import Attempt, Found, LogEntry, attempt_of, entry_of
from busd.rpc.envelope import encode

_MAX_TRACED_RECORDS = 10_000  # an id may have been used any number of times
_LAST_ID = 2**63 - 1  # the largest integer in SQLite
_LAST_SECOND = 253_402_300_799.0  # the end of the year 9999

_UNFOLDED = "FROM block CROSS JOIN json_each(block.deliveries) AS delivery"
_FOUND = f"SELECT block.id, delivery.key, wall_offset, delivery.value {_UNFOLDED}"
# Message ids are compared as JSON, the form in which they stand in the blocks.
_OF_MESSAGE = "WHERE instr(deliveries, :id) AND delivery.value -> {message_id} = :id"
_TRACE = f"""
{_FOUND} {_OF_MESSAGE}
ORDER BY wall_offset + (delivery.value ->> {{started}}) LIMIT :limit
""".format(**POSITIONS)
_COUNT = f"""
SELECT count(DISTINCT (delivery.value ->> {{call}}) || ' ' || (delivery.value ->> {{started}}))
{_UNFOLDED} {_OF_MESSAGE}
""".format(**POSITIONS)
_FIRST_BLOCK = "coalesce((SELECT max(id) FROM block WHERE id <= :first), 0)"
_MATCHING = f"""
{_FOUND}
WHERE block.id >= {_FIRST_BLOCK}
    AND block.id + delivery.key >= :first
    AND instr(deliveries, :to_part) AND delivery.value ->> {{to}} GLOB :to
    AND instr(deliveries, :sender_part) AND delivery.value ->> {{sender}} GLOB :sender
""".format(**POSITIONS)
# Not ordered by `key`: SQLite would sort all matches. Within a block `json_each` keeps the order.
_LATEST = f"{_MATCHING} ORDER BY block.id DESC LIMIT :limit"
_OF_BLOCK = f"{_MATCHING} AND block.id = :block"
_NEXT = f"{_MATCHING} AND NOT is_in_flight ORDER BY block.id LIMIT :limit"


def trace(path: Path, message_id: str) -> tuple[list[Attempt], int]:
    """Return the earliest attempts to send a message, and how many there are in all.

    Raise ConfigError if there is no log.
    """
    values: dict[str, object] = {"id": encode(message_id).decode(), "limit": _MAX_TRACED_RECORDS}
    calls: dict[tuple[int, float], list[Found]] = {}
    with _open(path) as db:
        found = list(_find(db, _TRACE, values))
        for each in found:
            calls.setdefault((each.record.call, each.record.started), []).append(each)
        count = len(calls)
        if len(found) == _MAX_TRACED_RECORDS:
            [count] = db.execute(_COUNT, values).fetchone()
    return [attempt_of(deliveries) for deliveries in calls.values()], count


def tail(
    path: Path,
    *,
    to: str | None = None,
    sender: str | None = None,
    since: float | None = None,
    after_id: int | None = None,
    limit: int = 100,
) -> list[LogEntry]:
    """Return the latest deliveries that match, in the order in which they were written.

    `to` and `sender` are patterns, `since` is in seconds since 1970. With `after_id`, return the
    next ones after that id instead of the latest, and only those that have ended: a delivery in
    flight gets a new id when it ends, so a reader who follows the log sees each exactly once.
    """
    to, sender = to or "*", sender or "*"
    values: dict[str, object] = {
        "first": _first_id(since, after_id),
        "to": glob_of(to),
        "to_part": literal_part(to),
        "sender": glob_of(sender),
        "sender_part": literal_part(sender),
        "limit": limit,
    }
    with _open(path) as db:
        if after_id is not None:
            return [entry_of(each) for each in _find(db, _NEXT, values)]
        found = list(_find(db, _LATEST, values))
        if len(found) == limit:
            # Only the first matches in the last of these blocks were found: replace them by all.
            block = found[-1].block
            found = [each for each in found if each.block != block]
            found += _find(db, _OF_BLOCK, {**values, "block": block})
    return [entry_of(each) for each in sorted(found, key=lambda each: each.id)[-limit:]]


def _first_id(since: float | None, after_id: int | None) -> int:
    """Return the first id to show, within SQLite's range; ids are microseconds."""
    moment = int(min(max(since or 0.0, 0.0), _LAST_SECOND) * 1e6)
    return min(max(moment, (after_id or 0) + 1), _LAST_ID)


def literal_part(pattern: str) -> str:
    """Return JSON text that every block with a match of the pattern contains."""
    pieces = split_glob(pattern)
    start = "".join(takewhile(lambda piece: piece[0] not in "*?[", pieces))
    quoted = encode(start).decode()
    return quoted if start == pattern else quoted[:-1]


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


_decode_record = msgspec.json.Decoder(Record).decode


def _find(db: sqlite3.Connection, query: str, values: dict[str, object]) -> Iterator[Found]:
    for block, key, wall_offset, value in db.execute(query, values):
        yield Found(block, key, wall_offset, _decode_record(value))


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the log for reading; raise ConfigError if it cannot be read."""
    try:
        # as_uri quotes what would otherwise be options
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            yield db
    except sqlite3.Error as problem:
        raise ConfigError(f"cannot read the activity log {path}: {problem}") from None
