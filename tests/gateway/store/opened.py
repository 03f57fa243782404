"""A store in a file, without a thread: each call is a transaction, at a time that the test sets."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar, cast

from busd.gateway.conversation import Author, Entry, Prompt, Turn
from busd.gateway.store import Store
from busd.gateway.store_file import Problem, StoreFile
from busd.gateway.store_limits import StoreLimits
from busd.gateway.stored import Conversation, OpenPrompt, OpenTurn, Outgoing

R = TypeVar("R")
NOW = 1_700_000_000.0
DAY = 86_400.0


class Opened:
    """The store of a file; `now` is what its clock shows."""

    def __init__(self, path: Path, limits: StoreLimits | None = None) -> None:
        self.path = path
        self.now = NOW
        self.file = StoreFile(path, limits or StoreLimits(), lambda: self.now)

    def do(self, operation: Callable[[Store], R]) -> R:
        """Execute one operation; raise what it raises."""
        outcome: Any = self.file.execute([operation])[0]
        if isinstance(outcome, Problem):
            raise outcome.exception
        return cast("R", outcome)

    @property
    def calls(self) -> Store:
        """The store; each call of a method is a transaction of its own."""
        return cast("Store", _Calls(self))

    def create(self, name: str = "lobby", user: str = "ann", *, is_room: bool = False) -> str:
        """Create a conversation and return its session id."""
        new = conversation(name, user, is_room=is_room)
        return self.do(lambda store: store.create(new)).session_id

    def keep(self, session_id: str, *entries: Entry) -> list[int]:
        """Keep entries in one transaction; return their numbers."""
        kept = self.do(lambda store: [store.keep(session_id, entry) for entry in entries])
        return [each.entry.number for each in kept]

    def names(self, session_id: str) -> list[str]:
        """Return the ids of all entries that are kept."""
        page = self.do(lambda store: store.page(session_id, last=10**6, max_bytes=10**9))
        return [each.id for each in page.entries]

    def upkeep(self, held: set[str] | None = None) -> int:
        """Do all that is due; return in how many slices."""
        slices = 0
        while self.do(lambda store: store.upkeep(held or set())):
            slices += 1
        return slices

    def select(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as db:
            return db.execute(query).fetchall()

    def close(self) -> None:
        self.file.close()


class _Calls:
    """Looks like a store."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(Store, name)
        return lambda *args, **kwargs: self._opened.do(lambda s: method(s, *args, **kwargs))


def conversation(name: str = "lobby", user: str = "ann", *, is_room: bool = False) -> Conversation:
    session_id = f"{name}-{user}" + "-room" * is_room
    return Conversation(
        session_id=session_id,
        address=f"tkr:{session_id}",
        prefix="tkr",
        channel="tkr",
        user=user,
        name=name,
        is_room=is_room,
    )


def words(name: str, text: str = "hello", **members: Any) -> Entry:
    return Entry(id=name, text=text, author=Author("ann"), **members)


def open_turn(name: str, slot: int = 0) -> OpenTurn:
    return OpenTurn(turn=Turn(id=name, agent=Author("a", "agent"), author=Author("ann")), slot=slot)


def open_prompt(name: str, turn: str = "t", slot: int = 0) -> OpenPrompt:
    prompt = Prompt(id=name, turn=turn, input_type="text", text="Sure?")
    return OpenPrompt(prompt=prompt, slot=slot, closes=NOW + 60)


def outgoing(message_id: str, payload: bytes = b"{}") -> Outgoing:
    return Outgoing(message_id=message_id, to="agent:a", payload=payload)
