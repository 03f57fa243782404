"""Records for the tests of the activity log, and what they look like once written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from busd.bus.record import Record, Status
from busd.journal.blocks import RecordBatch

# 2025-10-09T08:53:20Z
T0 = 1_760_000_000.0
PATIENCE_SECONDS = 30.0
HI = '{"text":"hi"}'
RpcId = int | float | str | None


def ended(
    call: int,
    message_id: str = "",
    *,
    rpc_id: RpcId = 1,
    sender: str = "tg:1",
    to: str = "agent:w",
    peer: str | None = None,
    is_first: bool = True,
    start: float = T0,
    answered: float | None = T0 + 0.25,
    is_last: bool = True,
    status: Status = "ok",
    error: str = "",
    payload: str = HI,
) -> Record:
    """A delivery that was handed over at T0 and answered a quarter of a second later."""
    return Record(
        call,
        message_id or f"m{call}",
        rpc_id,
        sender,
        to,
        to if peer is None else peer,
        start,
        answered,
        status,
        error,
        is_first,
        is_last,
        payload,
    )


def in_flight(call: int, message_id: str = "", *, peer: str = "agent:w") -> Record:
    """A delivery that was handed over at T0 and is not answered yet."""
    return ended(call, message_id, peer=peer, answered=None, status="in flight")


def no_route(call: int, message_id: str = "") -> Record:
    """A message without an addressee."""
    return ended(call, message_id, peer="", answered=T0, status="no route")


def batch(records: Iterable[Record] = (), in_flight: Iterable[Record] = ()) -> RecordBatch:
    return RecordBatch(list(records), 0.0, list(in_flight), [])


def nothing_open(call: int) -> Iterable[Record]:
    return ()


def select(path: Path, query: str, *values: object) -> list[Any]:
    """Read the database as anybody else would."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query, values).fetchall()


def records(path: Path) -> list[Record]:
    """Return all deliveries, in the order of their ids."""
    query = "SELECT value FROM block, json_each(deliveries) ORDER BY block.id, key"
    return [msgspec.json.decode(value, type=Record) for (value,) in select(path, query)]


def statuses(path: Path) -> dict[str, str]:
    """Return the status by message id."""
    return {record.message_id: record.status for record in records(path)}
