"""The store: what the bridge has to know after a restart, beside the ledger of the kit.

| kind | key | value |
| --- | --- | --- |
| `question` | name in the data of its buttons | a prompt that is shown with buttons |
| `asker` | chat and turn | the user who began a turn in a group |
| `moved` | chat id | the chat id of the supergroup that the group has become |
| `origin` | id of a supergroup | the chat id that the bus knows it by |
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from busd import ConfigError
from busd.database import DatabaseFile, Layout, is_damage

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
_FAULTS = (sqlite3.Error, OSError, ConfigError)
_FIND = "SELECT value FROM record WHERE kind = ? AND key = ?"
_TRIM = """
DELETE FROM record WHERE kind = ?1 AND at < (
    SELECT at FROM record WHERE kind = ?1 ORDER BY at DESC LIMIT 1 OFFSET ?2)
"""


class Store(DatabaseFile):
    """Small records in a database of the bridge's folder.

    What it does not know costs a button or the name of a moved group, never a message: so a disk
    that fails is logged and stops nothing. The constructor raises ConfigError, or BusdError if the
    disk is full.
    """

    def __init__(self, path: Path) -> None:
        self._writes = 0
        super().__init__(path, _LAYOUT)

    def put(self, kind: Kind, key: str, value: Any) -> bool:  # Any: what msgspec can encode
        """Keep a record; return False if that is not possible now."""
        row = (kind, key, msgspec.json.encode(value), time.time())
        try:
            with self.transaction() as db:
                db.execute("INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?)", row)
                self._writes += 1
                if self._writes % _TRIM_EVERY == 0:
                    db.execute(_TRIM, (kind, _MAX_RECORDS))
        except _FAULTS as problem:
            self._note(problem)
            return False
        return True

    def find(self, kind: Kind, key: str, type: type[T]) -> T | None:  # noqa: A002
        """Return a record; None if there is none, or if it cannot be read."""
        try:
            found = self.open().execute(_FIND, (kind, key)).fetchone()
        except _FAULTS as problem:
            self._note(problem)
            return None
        return msgspec.json.decode(found[0], type=type) if found else None

    def _note(self, problem: Exception) -> None:
        log.warning("%s cannot be used now: %s", self.path, problem)
        if is_damage(problem):
            with contextlib.suppress(OSError):
                self.move_aside(str(problem))

    def on_moved(self, aside: str, problem: str) -> None:
        log.error("%s is damaged (%s) and was renamed to %s", self.path, problem, aside)
