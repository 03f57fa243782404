"""Rows for the tests of the activity log, and what they look like once written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import Raw

from busd.bus.journal import Batch, Row, Status
from busd.rpc.envelope import RequestId

# 2025-10-09T08:53:20Z
T0 = 1_760_000_000.0
PATIENCE_SECONDS = 30.0
HI = Raw(b'{"text":"hi"}')


def ended(
    call: int,
    message_id: str = "",
    *,
    rpc_id: RequestId = 1,
    sender: str = "tg:1",
    to: str = "agent:w",
    peer: str | None = None,
    is_first: int = 1,
    start: float = T0,
    handed_over: float | None = None,
    answered: float = T0 + 0.25,
    finish: float | None = None,
    status: Status = "ok",
    error: str = "",
    payload: Raw | str = HI,
) -> Row:
    """A delivery that was handed over at T0 and answered a quarter of a second later."""
    return (
        call,
        message_id or f"m{call}",
        rpc_id,
        sender,
        to,
        to if peer is None else peer,
        is_first,
        start,
        start if handed_over is None else handed_over,
        answered,
        answered if finish is None else finish,
        status,
        error,
        payload,
    )


def in_flight(call: int, message_id: str = "", *, peer: str = "agent:w", is_first: int = 1) -> Row:
    """A delivery that was handed over at T0 and is not answered yet."""
    return ended(call, message_id, peer=peer, is_first=is_first, answered=0.0, status="in flight")


def no_route(call: int, message_id: str = "") -> Row:
    """A message that nobody was there for."""
    return ended(
        call, message_id, peer="", handed_over=0.0, answered=0.0, finish=T0, status="no route"
    )


def batch(rows: Iterable[Row] = (), open_rows: Iterable[Row] = ()) -> Batch:
    return Batch([], 0.0, list(rows), list(open_rows), [])


def nothing_open(call: int) -> Iterable[Row]:
    return ()


def select(path: Path, query: str, *values: object) -> list[Any]:
    """Read the database as anybody else would."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query, values).fetchall()


def statuses(path: Path) -> dict[str, str]:
    """Give the status by message id."""
    return dict(select(path, "SELECT message_id, status FROM deliveries"))
