"""The store: what the bridge has to know after a restart, beside the ledger of the kit.

| kind | key | value |
| --- | --- | --- |
| `question` | name in the data of its buttons | a prompt that is shown with buttons |
| `asker` | chat and turn | the user who began a turn in a group |
| `moved` | chat id | the chat id of the supergroup that the group has become |
| `origin` | id of a supergroup | the chat id that the bus knows it by |
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

Kind = Literal["question", "asker", "moved", "origin"]
T = TypeVar("T")
_MAX_RECORDS = 20_000  # of each kind; the oldest are forgotten
_TRIM_EVERY = 500
_SCHEMA = """
CREATE TABLE IF NOT EXISTS record (
    kind TEXT, key TEXT, value BLOB, at REAL, PRIMARY KEY (kind, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS record_at ON record (kind, at);
"""
_TRIM = """
DELETE FROM record WHERE kind = ?1 AND at < (
    SELECT at FROM record WHERE kind = ?1 ORDER BY at DESC LIMIT 1 OFFSET ?2)
"""


class Store:
    """Small records in a database of the bridge's folder."""

    def __init__(self, file: Path) -> None:
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
        self._database = sqlite3.connect(file, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.executescript(_SCHEMA)
        self._writes = 0

    def close(self) -> None:
        self._database.close()

    def put(self, kind: Kind, key: str, value: Any) -> None:  # Any: what msgspec can encode
        row = (kind, key, msgspec.json.encode(value), time.time())
        self._database.execute("INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?)", row)
        self._writes += 1
        if self._writes % _TRIM_EVERY == 0:
            self._database.execute(_TRIM, (kind, _MAX_RECORDS))

    def find(self, kind: Kind, key: str, type: type[T]) -> T | None:  # noqa: A002
        """Return a record; None if there is none."""
        found = self._database.execute(
            "SELECT value FROM record WHERE kind = ? AND key = ?", (kind, key)
        ).fetchone()
        return msgspec.json.decode(found[0], type=type) if found else None
