"""Chats: their ids on the bus and at Telegram, the names of turns, and the pace of groups.

A group that becomes a supergroup gets a new id at Telegram. On the bus it keeps the one it had, so
that its agent and its conversation stay the same.
"""

from __future__ import annotations

import re
from collections import deque

import anyio
import msgspec
from aiogram.types import Message

from busd.bridge import SlowDown
from busd_plugins.telegram.store import Store

_TURN = re.compile(r"(\d{1,15})(?:[ec]\d+)?(?:@(\d{1,15}))?")
_MAX_GROUPS = 10_000
_MINUTE_SECONDS = 60.0


class Place(msgspec.Struct, frozen=True):
    """Where in a chat a turn began."""

    message_id: int = 0
    thread_id: int = 0  # of a topic


def turn_of(message: Message, suffix: str = "") -> str:
    """Return the name of the turn that a message begins; `place_of` reads it."""
    thread = message.message_thread_id if message.is_topic_message else None
    return f"{message.message_id}{suffix}" + (f"@{thread}" if thread else "")


def place_of(turn: str) -> Place:
    """Return the message and the topic that a turn began with."""
    found = _TURN.fullmatch(turn)
    return Place(int(found[1]), int(found[2] or 0)) if found else Place()


def is_group(chat_id: str | int) -> bool:
    """Return whether an id is that of a group: those of users are positive."""
    return str(chat_id).startswith("-")


class Chats:
    """The chats that have moved."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def outer(self, chat_id: str) -> str:
        """Return the id at Telegram of a chat on the bus."""
        return self._store.find("moved", chat_id, str) or chat_id

    def inner(self, chat_id: int) -> str:
        """Return the id on the bus of a chat at Telegram."""
        return self._store.find("origin", str(chat_id), str) or str(chat_id)

    def move(self, old: int | str, new: int) -> None:
        """Record that a group has become a supergroup."""
        origin = self.inner(int(old))
        self._store.put("moved", origin, str(new))
        self._store.put("origin", str(new), origin)


class GroupPace:
    """How many messages a group gets within a minute: Telegram allows 20."""

    def __init__(self, limit: int = 20, reserve: int = 6) -> None:
        self._limit = limit
        self._reserve = reserve  # for replies; drafts have to leave so many
        self._times: dict[str, deque[float]] = {}

    def take(self, chat_id: str) -> None:
        """Count a message; raise SlowDown if the group has had too many."""
        if not is_group(chat_id):
            return
        times = self._recent(chat_id)
        now = anyio.current_time()
        if len(times) >= self._limit:
            seconds = max(times[0] + _MINUTE_SECONDS - now, 0.1)
            raise SlowDown(seconds, everywhere=False, reason="a group gets 20 messages a minute")
        times.append(now)

    def try_take(self, chat_id: str) -> bool:
        """Count a message that may also be left out; return False if it has to be."""
        if is_group(chat_id):
            times = self._recent(chat_id)
            if len(times) >= self._limit - self._reserve:
                return False
            times.append(anyio.current_time())
        return True

    def _recent(self, chat_id: str) -> deque[float]:
        while len(self._times) >= _MAX_GROUPS and chat_id not in self._times:
            del self._times[next(iter(self._times))]
        times = self._times.setdefault(chat_id, deque())
        oldest = anyio.current_time() - _MINUTE_SECONDS
        while times and times[0] <= oldest:
            times.popleft()
        return times
