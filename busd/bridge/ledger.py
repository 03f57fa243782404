"""The ledger: what was posted to the other system, on the disk.

| record | state | written |
| --- | --- | --- |
| part of a reply | begun | before it is posted; deleted again if it is known not to be posted |
| part of a reply | done | when it was posted, with its external id |
| reply | done | when all its parts are; its parts, and what it replaces, are deleted |
| draft, prompt, error | done | when the bridge has shown it, with its external id |

A part that was begun and has no outcome may have been posted: the process was killed in between.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeVar

import anyio
import msgspec
from anyio import to_thread

from busd.database import DatabaseFile, Layout, is_damage
from busd.errors import BusdError, ConfigError

log = logging.getLogger("busd.bridge")

R = TypeVar("R")
Kind = Literal["part", "reply", "draft", "prompt", "error"]
_DAY_SECONDS = 86_400.0
_LAYOUT = Layout(
    contents="ledger",
    tables="""
CREATE TABLE record (
    key BLOB PRIMARY KEY, kind TEXT NOT NULL, done INTEGER NOT NULL,
    external_id TEXT NOT NULL, at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX record_at ON record (at);
""",
    application_id=0x62757362,  # "busb"
    version=1,
)
_PUT = """
INSERT INTO record VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET done = excluded.done, external_id = excluded.external_id
"""
_FIND = "SELECT done, external_id FROM record WHERE key = ?"
_DELETE = "DELETE FROM record WHERE key = ?"
_DELETE_OLD = "DELETE FROM record WHERE at < ?"
_DELETE_OLDEST = """
DELETE FROM record WHERE key IN (SELECT key FROM record ORDER BY at LIMIT max(0, (
    SELECT count(*) FROM record) - ?))
"""


class LedgerLimits(msgspec.Struct, frozen=True):
    """How long, and how much, the ledger remembers; the oldest records are deleted first."""

    seconds: float = 31 * _DAY_SECONDS  # longer than a bus keeps a message by default
    count: int = 200_000
    trim_every: int = 1_000  # writes


class LedgerFailed(BusdError):
    """The disk cannot take it now; nothing has changed."""


class Key(msgspec.Struct, frozen=True):
    """What a record is about."""

    kind: Kind
    words: tuple[str, ...]  # of the reply: sender and id; of the others: chat, turn or prompt

    @property
    def digest(self) -> bytes:
        """Return a key of fixed size: ids of others may be long."""
        return sha256(msgspec.json.encode((self.kind, *self.words))).digest()


class Begun(msgspec.Struct, frozen=True):
    """What was on record when a part was begun."""

    is_done: bool = False
    is_repeat: bool = False


class Ledger:
    """The open ledger. The constructor opens the file; raise ConfigError, or BusdError."""

    def __init__(
        self,
        path: Path,
        limits: LedgerLimits = LedgerLimits(),  # noqa: B008 - immutable
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.is_failing = False
        self._limits, self._clock = limits, clock
        self._writes = 0
        self._turn = anyio.CapacityLimiter(1)  # one thread at a time
        self._file = _LedgerFile(path, _LAYOUT)
        self.close = self._file.close

    async def is_done(self, key: Key) -> bool:
        return (await self._run(partial(self._find, key)))[0]

    async def find(self, key: Key) -> str:
        """Return the external id on record, or ""."""
        return (await self._run(partial(self._find, key)))[1]

    async def begin(self, key: Key) -> Begun:
        """Record that a part will be posted, and return what was on record before."""
        return await self._run(partial(self._begin, key))

    async def put(self, key: Key, external_id: str) -> None:
        """Record that something was posted."""
        await self._run(partial(self._put, key, external_id))

    async def forget(self, *keys: Key) -> None:
        await self._run(partial(self._forget, keys))

    async def finish(self, reply: Key, replaced: Iterable[Key]) -> None:
        """Record that a reply is done, and forget what it replaces."""
        await self._run(partial(self._finish, reply, tuple(replaced)))

    async def count(self) -> int:
        """Return the number of records."""
        return await self._run(
            lambda db: int(db.execute("SELECT count(*) FROM record").fetchone()[0])
        )

    # In the thread

    async def _run(self, operation: Callable[[sqlite3.Connection], R]) -> R:
        return await to_thread.run_sync(self._execute, operation, limiter=self._turn)

    def _execute(self, operation: Callable[[sqlite3.Connection], R]) -> R:
        """Execute an operation in a transaction; raise LedgerFailed."""
        try:
            changes = self._file.open().total_changes
            with self._file.transaction() as db:
                outcome = operation(db)
                if db.total_changes != changes:
                    self._trim(db)
        except (sqlite3.Error, OSError, ConfigError) as problem:
            self._note_failure(problem)
            raise LedgerFailed(f"the ledger cannot be used: {problem}") from None
        if self.is_failing and db.total_changes != changes:  # reading succeeds on a full disk, too
            self.is_failing = False
            log.warning("the ledger %s can be written again", self._file.path)
        return outcome

    def _note_failure(self, problem: Exception) -> None:
        if not self.is_failing:
            log.error("the ledger %s cannot be used: %s", self._file.path, problem)
        self.is_failing = True
        self._file.close()  # it is opened again by the next operation
        if is_damage(problem):
            with contextlib.suppress(OSError):
                self._file.move_aside(str(problem))

    def _trim(self, db: sqlite3.Connection) -> None:
        if self._writes % self._limits.trim_every == 0:  # also the first time
            db.execute(_DELETE_OLD, (self._clock() - self._limits.seconds,))
            db.execute(_DELETE_OLDEST, (self._limits.count,))
        self._writes += 1

    def _find(self, key: Key, db: sqlite3.Connection) -> tuple[bool, str]:
        done, external_id = db.execute(_FIND, (key.digest,)).fetchone() or (0, "")
        return bool(done), external_id

    def _begin(self, key: Key, db: sqlite3.Connection) -> Begun:
        row = db.execute(_FIND, (key.digest,)).fetchone()
        if row is not None:
            return Begun(is_done=bool(row[0]), is_repeat=not row[0])
        db.execute(_PUT, (key.digest, key.kind, 0, "", self._clock()))
        return Begun()

    def _put(self, key: Key, external_id: str, db: sqlite3.Connection) -> None:
        db.execute(_PUT, (key.digest, key.kind, 1, external_id, self._clock()))

    def _forget(self, keys: Iterable[Key], db: sqlite3.Connection) -> None:
        db.executemany(_DELETE, [(each.digest,) for each in keys])

    def _finish(self, reply: Key, replaced: Iterable[Key], db: sqlite3.Connection) -> None:
        self._put(reply, "", db)
        self._forget(replaced, db)


class _LedgerFile(DatabaseFile):
    def on_moved(self, aside: str, problem: str) -> None:
        log.error(
            "the ledger %s is damaged (%s) and was renamed to %s; a reply that is delivered again"
            " may be posted twice",
            *(self.path, problem, aside),
        )
