"""The store: what the bridge has to know after a restart, beside the ledger of the kit.

| kind | key | value |
| --- | --- | --- |
| `question` | name in the data of its buttons | a prompt that is shown with buttons |
| `asker` | chat and turn | the user who began a turn in a group |
| `moved` | chat id | the chat id of the supergroup that the group has become |
| `origin` | id of a supergroup | the chat id that the bus knows it by |
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from busd.database import DatabaseFile, Layout

log = logging.getLogger("busd.telegram")

Kind = Literal["question", "asker", "moved", "origin"]
T = TypeVar("T")
_MAX_RECORDS = 20_000  # of each kind; the oldest are forgotten
_TRIM_EVERY = 500
_LAYOUT = Layout(
    contents="record of the bridge",
    tables="""
CREATE TABLE record (
    kind TEXT, key TEXT, value BLOB, at REAL, PRIMARY KEY (kind, key)
) WITHOUT ROWID;
CREATE INDEX record_at ON record (kind, at);
""",
    application_id=0x62757374,  # "bust"
    version=1,
    is_synced=False,
)
_TRIM = """
DELETE FROM record WHERE kind = ?1 AND at < (
    SELECT at FROM record WHERE kind = ?1 ORDER BY at DESC LIMIT 1 OFFSET ?2)
"""


class Store(DatabaseFile):
    """Small records in a database of the bridge's folder.

    The constructor raises ConfigError, or BusdError if the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self._writes = 0
        super().__init__(path, _LAYOUT)

    def on_moved(self, aside: str, problem: str) -> None:
        log.warning("%s is damaged (%s) and was renamed to %s", self.path, problem, aside)

    def put(self, kind: Kind, key: str, value: Any) -> None:  # Any: what msgspec can encode
        row = (kind, key, msgspec.json.encode(value), time.time())
        self.open().execute("INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?)", row)
        self._writes += 1
        if self._writes % _TRIM_EVERY == 0:
            self.open().execute(_TRIM, (kind, _MAX_RECORDS))

    def find(self, kind: Kind, key: str, type: type[T]) -> T | None:  # noqa: A002
        """Return a record; None if there is none."""
        found = (
            self.open()
            .execute("SELECT value FROM record WHERE kind = ? AND key = ?", (kind, key))
            .fetchone()
        )
        return msgspec.json.decode(found[0], type=type) if found else None
