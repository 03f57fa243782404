"""The table of conversations: they are found by names, and deleted for new ones."""

# ruff: noqa: S608 (the parts of the statements are constants of this file)

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from typing import Any

from busd.gateway.store_limits import StoreLimits
from busd.gateway.store_space import HAS_WORK, StoreSpace
from busd.gateway.stored import Conversation, NameTaken, StoreFull, UnknownConversation

_TOUCH_SECONDS = 60.0  # a use is recorded no more precisely: it would cost a write
# A conversation that was used since then is not deleted for another one: clients may be in it, of
# whom the caller of `create` did not know yet.
_REST_SECONDS = 3_600.0

_FIELDS = Conversation.__struct_fields__
_NAMES = ", ".join(_FIELDS)
_SELECT = f"SELECT {_NAMES} FROM conversation WHERE"
_INSERT = f"INSERT INTO conversation ({_NAMES}) VALUES ({', '.join('?' * len(_FIELDS))})"
_LEAST_USED = f"""
SELECT id, session_id FROM conversation
WHERE user = ? AND NOT is_room AND last_used < ? AND NOT {HAS_WORK} ORDER BY last_used
"""
_UNFINISHED = f"{_SELECT} session_id > ? AND {HAS_WORK} ORDER BY session_id LIMIT ?"


class StoreConversations:
    """Conversations by their names, within the caller's transaction."""

    def __init__(
        self,
        db: sqlite3.Connection,
        limits: StoreLimits,
        clock: Callable[[], float],
        space: StoreSpace,
    ) -> None:
        self._db, self._limits, self._clock, self._space = db, limits, clock, space

    def row_id(self, session_id: str) -> int:
        """Return the number that rows of other tables know a conversation by."""
        query = "SELECT id FROM conversation WHERE session_id = ?"
        found: tuple[int] | None = self._db.execute(query, (session_id,)).fetchone()
        if not found:
            raise UnknownConversation(session_id)
        return found[0]

    def create(self, new: Conversation, held: Collection[str]) -> Conversation:
        self._delete_spare(new.user, held)
        now = self._clock()
        values: dict[str, Any] = {field: getattr(new, field) for field in _FIELDS}
        values |= {"created": new.created or now, "last_used": new.last_used or now}
        try:
            self._db.execute(_INSERT, tuple(values.values()))
        except sqlite3.IntegrityError:
            raise NameTaken(f"there is a conversation {new.name!r} already") from None
        row_id = self.row_id(new.session_id)
        self._space.fit(row_id)
        return Conversation(**values)

    def make_room(self, session_id: str) -> Conversation:
        update = "UPDATE conversation SET is_room = 1 WHERE id = ?"
        try:
            self._db.execute(update, (self.row_id(session_id),))
        except sqlite3.IntegrityError:
            raise NameTaken("there is a room of this name already") from None
        found = self.find_session(session_id)
        assert found is not None
        return found

    def _delete_spare(self, user: str, held: Collection[str]) -> None:
        """Delete the user's least recently used conversations if there are too many."""
        query = "SELECT conversations FROM owner WHERE user = ?"
        count = (self._db.execute(query, (user,)).fetchone() or (0,))[0]
        limit = self._limits.conversations_per_user
        if count < limit:
            return
        resting = self._db.execute(_LEAST_USED, (user, self._clock() - _REST_SECONDS))
        spare = [row_id for row_id, session_id in resting if session_id not in held]
        if count - len(spare) >= limit:
            raise StoreFull("conversations_per_user", limit)
        for row_id in spare[: count - limit + 1]:
            self._space.delete(row_id)

    def find(self, user: str, name: str) -> Conversation | None:
        """Return the room of that name if the user is its member, else the user's own."""
        is_member = "EXISTS (SELECT 1 FROM member WHERE conversation = id AND member.user = ?)"
        room = self._find(f"name = ? AND is_room AND {is_member}", name, user)
        return room or self._find("user = ? AND name = ? AND NOT is_room", user, name)

    def find_room(self, name: str) -> Conversation | None:
        return self._find("name = ? AND is_room", name)

    def find_session(self, session_id: str) -> Conversation | None:
        return self._find("session_id = ?", session_id)

    def find_address(self, address: str) -> Conversation | None:
        return self._find("address = ?", address)

    def _find(self, condition: str, *values: str) -> Conversation | None:
        row = self._db.execute(f"{_SELECT} {condition}", values).fetchone()
        return _conversation(row) if row else None

    def touch(self, row_id: int) -> None:
        update = "UPDATE conversation SET last_used = ? WHERE id = ? AND last_used < ?"
        now = self._clock()
        self._db.execute(update, (now, row_id, now - _TOUCH_SECONDS))

    def delete(self, session_id: str) -> None:
        self._space.delete(self.row_id(session_id))

    def unfinished(self, after: str, limit: int) -> list[Conversation]:
        return [_conversation(row) for row in self._db.execute(_UNFINISHED, (after, limit))]


def _conversation(row: tuple[Any, ...]) -> Conversation:
    values = dict(zip(_FIELDS, row, strict=True))
    return Conversation(**{**values, "is_room": bool(values["is_room"])})
