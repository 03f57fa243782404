"""The store: each message that was posted, and the replies to it, on the disk.

| state | meaning | next |
| --- | --- | --- |
| new | the bus has not accepted it yet, as far as is known | accepted, refused, deleted |
| accepted | an agent works on it | asking, answered |
| asking | the last reply is a question | accepted, answered |
| answered | the last reply is none | asking |
| refused | the bus will never accept it | |
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeVar

import anyio
import msgspec
from anyio import to_thread

from busd import BusdError, ConfigError
from busd.database import DatabaseFile, Layout, is_damage

log = logging.getLogger("busd.bridge")

R = TypeVar("R")
Kept = Literal["new", "accepted", "asking", "answered", "refused"]
_LAYOUT = Layout(
    contents="requests",
    tables="""
CREATE TABLE request (
    id TEXT PRIMARY KEY, hook TEXT NOT NULL, key BLOB, digest BLOB NOT NULL, chat_id TEXT NOT NULL,
    callback_url TEXT NOT NULL, follows TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL,
    at REAL NOT NULL, UNIQUE (hook, key)
) WITHOUT ROWID;
CREATE INDEX request_at ON request (at);
CREATE INDEX request_chat ON request (chat_id, at);
CREATE TABLE reply (
    number INTEGER PRIMARY KEY, request TEXT NOT NULL, nonce TEXT NOT NULL, body BLOB NOT NULL,
    callback TEXT NOT NULL, at REAL NOT NULL, UNIQUE (request, nonce)
);
""",
    application_id=0x62757368,  # "bush"
    version=1,
)
_FIELDS = "id, hook, digest, chat_id, callback_url, follows, state, reason, at"
# Of one request; later replies are refused.
_MAX_REPLIES, _MAX_REPLY_BYTES = 100, 4 * 1024 * 1024
_DAY_SECONDS = 86_400.0


class StoreLimits(msgspec.Struct, frozen=True):
    """How long, and how much, is kept; the oldest requests are deleted first."""

    seconds: float = 7 * _DAY_SECONDS
    requests: int = 20_000
    reply_bytes: int = 512 * 1024 * 1024
    trim_every: int = 100  # new requests


class Request(msgspec.Struct):
    """A message that was posted."""

    id: str
    hook: str
    digest: bytes  # of what was posted
    chat_id: str  # within the bridge: HOOK/CHAT
    callback_url: str = ""
    follows: str = ""  # the request whose question it answers; that one gets the replies
    state: Kept = "new"
    reason: str = ""  # of a refusal
    at: float = 0.0

    @property
    def subject(self) -> str:
        """The id of the request that gets the replies."""
        return self.follows or self.id


class KeptReply(msgspec.Struct):
    """A reply, as JSON, and what has become of its callback."""

    body: bytes
    callback: str  # "" if it is not delivered yet, or has none
    at: float


class StoreFailed(BusdError):
    """The disk cannot take it now; nothing has changed."""


class TooManyReplies(Exception):
    """A request has as many replies as it may have, or as large ones."""


class Store:
    """The open store. The constructor opens the file; raise ConfigError, or BusdError."""

    def __init__(
        self,
        path: Path,
        limits: StoreLimits = StoreLimits(),  # noqa: B008 - immutable
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._limits, self._clock = limits, clock
        self._turn = anyio.CapacityLimiter(1)  # one thread at a time
        self._opened = 0
        self._file = _StoreFile(path, _LAYOUT)
        self._db = self._file.open()  # of the transaction
        self.close = self._file.close

    # Requests

    async def begin(self, new: Request, key: str, prompt_id: str = "") -> Request:
        """Keep a new request; return the one of the same key instead, if there is one."""
        return await self._run(partial(self._begin, new, key, prompt_id))

    async def find(self, hook: str, request_id: str) -> Request | None:
        return await self._run(lambda: self._one("id = ? AND hook = ?", request_id, hook))

    async def accept(self, request: Request) -> None:
        """Note that the bus has accepted it."""
        await self._run(partial(self._accept, request))

    async def refuse(self, request: Request, reason: str) -> None:
        words = "UPDATE request SET state = 'refused', reason = ? WHERE id = ?"
        await self._run(lambda: self._db.execute(words, (reason, request.id)))

    async def forget(self, request: Request) -> None:
        """Delete a request that the bus has not seen."""
        await self._run(lambda: self._db.execute("DELETE FROM request WHERE id = ?", (request.id,)))

    def _begin(self, new: Request, key: str, prompt_id: str) -> Request:
        hashed = sha256(key.encode()).digest() if key else None
        known = self._one("hook = ? AND key = ?", new.hook, hashed) if key else None
        if known is not None:
            return known
        if self._opened % self._limits.trim_every == 0:  # also the first time
            self._trim()
        self._opened += 1
        if prompt_id:
            asking = self._one("chat_id = ? AND state = 'asking'", new.chat_id)
            new.follows = asking.id if asking else ""
        new.at = self._clock()
        row = (new.id, new.hook, hashed, new.digest, new.chat_id, new.callback_url)
        self._db.execute(
            "INSERT INTO request VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*row, new.follows, new.state, new.reason, new.at),
        )
        return new

    def _accept(self, request: Request) -> None:
        words = "UPDATE request SET state = 'accepted' WHERE id = ? AND state = ?"
        self._db.execute(words, (request.id, "new"))
        if request.follows:
            self._db.execute(words, (request.follows, "asking"))

    def _one(self, where: str, *values: object) -> Request | None:
        found = self._db.execute(
            f"SELECT {_FIELDS} FROM request WHERE {where} ORDER BY at DESC LIMIT 1",  # noqa: S608 - our own words
            values,
        ).fetchone()
        return Request(*found) if found else None

    def _trim(self) -> None:
        limits = self._limits
        self._db.execute("DELETE FROM request WHERE at < ?", (self._clock() - limits.seconds,))
        count = self._db.execute("SELECT count(*) FROM request").fetchone()[0]
        self._delete_oldest(count - limits.requests)
        while self._reply_bytes() > limits.reply_bytes:
            self._delete_oldest(limits.trim_every)

    def _delete_oldest(self, count: int) -> None:
        words = "DELETE FROM request WHERE id IN (SELECT id FROM request ORDER BY at LIMIT ?)"
        self._db.execute(words, (max(count, 0),))
        self._db.execute("DELETE FROM reply WHERE request NOT IN (SELECT id FROM request)")

    def _reply_bytes(self) -> int:
        words = "SELECT coalesce(sum(length(body)), 0) FROM reply"
        return int(self._db.execute(words).fetchone()[0])

    # Replies

    async def find_for(self, chat_id: str, reply_to: str) -> Request | None:
        """Return the request that gets a reply: the one it names, else the one of its chat."""
        return await self._run(partial(self._find_for, chat_id, reply_to))

    async def add(self, request: Request, nonce: str, body: bytes, *, is_prompt: bool) -> KeptReply:
        """Keep a reply, once; raise TooManyReplies."""
        return await self._run(partial(self._add, request, nonce, body, is_prompt))

    async def note_callback(self, request: Request, nonce: str, outcome: str) -> None:
        words = "UPDATE reply SET callback = ? WHERE request = ? AND nonce = ?"
        await self._run(lambda: self._db.execute(words, (outcome, request.id, nonce)))

    async def replies(self, request_id: str) -> list[KeptReply]:
        words = "SELECT body, callback, at FROM reply WHERE request = ? ORDER BY number"
        return await self._run(
            lambda: [KeptReply(*row) for row in self._db.execute(words, (request_id,))]
        )

    def _find_for(self, chat_id: str, reply_to: str) -> Request | None:
        found = self._one("id = ? AND chat_id = ?", reply_to, chat_id) if reply_to else None
        if found is None:
            # Agents answer in order: it belongs to the oldest that waits, else to the last one.
            row = self._db.execute(
                "SELECT id FROM request WHERE chat_id = ? AND state IN ('new', 'accepted')"
                " AND follows = '' ORDER BY at LIMIT 1",
                (chat_id,),
            ).fetchone()
            found = self._one("id = ?", row[0]) if row else self._one("chat_id = ?", chat_id)
        if found is not None and found.follows:
            found = self._one("id = ?", found.follows) or found
        return found

    def _add(self, request: Request, nonce: str, body: bytes, is_prompt: bool) -> KeptReply:
        find = "SELECT body, callback, at FROM reply WHERE request = ? AND nonce = ?"
        if row := self._db.execute(find, (request.id, nonce)).fetchone():
            return KeptReply(*row)
        words = "SELECT count(*), coalesce(sum(length(body)), 0) FROM reply WHERE request = ?"
        count, size = self._db.execute(words, (request.id,)).fetchone()
        if count >= _MAX_REPLIES or size + len(body) > _MAX_REPLY_BYTES:
            raise TooManyReplies
        now = self._clock()
        words = "INSERT INTO reply (request, nonce, body, callback, at) VALUES (?, ?, ?, '', ?)"
        self._db.execute(words, (request.id, nonce, body, now))
        state = "asking" if is_prompt else "answered"
        self._db.execute("UPDATE request SET state = ? WHERE id = ?", (state, request.id))
        return KeptReply(body, "", now)

    # The thread

    async def _run(self, operation: Callable[[], R]) -> R:
        return await to_thread.run_sync(self._execute, operation, limiter=self._turn)

    def _execute(self, operation: Callable[[], R]) -> R:
        """Execute an operation in a transaction; raise StoreFailed."""
        try:
            with self._file.transaction() as self._db:
                return operation()
        except (sqlite3.Error, OSError, ConfigError) as problem:
            if is_damage(problem):
                with contextlib.suppress(OSError):  # the next transaction tries again
                    self._file.move_aside(str(problem))
            raise StoreFailed(f"{self._file.path} cannot be used: {problem}") from None


class _StoreFile(DatabaseFile):
    def on_moved(self, aside: str, problem: str) -> None:
        log.error("%s is damaged (%s) and was renamed to %s", self.path, problem, aside)
