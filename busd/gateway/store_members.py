"""Who takes part in a conversation: members of rooms, authors, and clients with their names."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from busd.gateway.schema import ROW_BYTES
from busd.gateway.store_conversations import StoreConversations
from busd.gateway.store_limits import StoreLimits
from busd.gateway.store_space import StoreSpace
from busd.gateway.stored import MAX_AUTHORS, MAX_CURSORS, StoreFull

_MOVE = """
INSERT INTO cursor VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE
SET number = excluded.number, moved_at = excluded.moved_at WHERE number < excluded.number
"""
_FORGET = """
DELETE FROM cursor WHERE conversation = :this AND client IN (
    SELECT client FROM cursor WHERE conversation = :this
    ORDER BY moved_at DESC, number DESC LIMIT -1 OFFSET :count
)
"""


class StoreMembers:
    """Members, authors and cursors of all conversations, within the caller's transaction."""

    def __init__(
        self,
        db: sqlite3.Connection,
        limits: StoreLimits,
        clock: Callable[[], float],
        conversations: StoreConversations,
        space: StoreSpace,
    ) -> None:
        self._db, self._limits, self._clock = db, limits, clock
        self._conversations, self._space = conversations, space

    # Members

    def add(self, session_id: str, user: str) -> bool:
        row_id = self._conversations.row_id(session_id)
        if self.is_member(session_id, user):
            return False
        if self._count("SELECT count(*) FROM member WHERE conversation = ?", row_id) >= (
            self._limits.members
        ):
            raise StoreFull("members", self._limits.members)
        size = ROW_BYTES + len(user)
        self._db.execute("INSERT INTO member VALUES (?, ?, ?)", (row_id, user, size))
        self._space.fit(row_id)
        return True

    def remove(self, session_id: str, user: str) -> bool:
        delete = "DELETE FROM member WHERE conversation = ? AND user = ?"
        values = (self._conversations.row_id(session_id), user)
        return self._db.execute(delete, values).rowcount > 0

    def is_member(self, session_id: str, user: str) -> bool:
        query = "SELECT 1 FROM member WHERE conversation = ? AND user = ?"
        values = (self._conversations.row_id(session_id), user)
        return bool(self._db.execute(query, values).fetchone())

    def after(self, session_id: str, after: str, limit: int) -> list[str]:
        query = "SELECT user FROM member WHERE conversation = ? AND user > ? ORDER BY user LIMIT ?"
        rows = self._db.execute(query, (self._conversations.row_id(session_id), after, limit))
        return [user for (user,) in rows]

    # Authors

    def bind_author(self, session_id: str, author_id: str, user: str) -> str:
        row_id = self._conversations.row_id(session_id)
        query = "SELECT user FROM author WHERE conversation = ? AND author_id = ?"
        owner: tuple[str] | None = self._db.execute(query, (row_id, author_id)).fetchone()
        if owner:
            return owner[0]
        query = "SELECT count(*) FROM author WHERE conversation = ? AND user = ?"
        if self._count(query, row_id, user) >= MAX_AUTHORS:
            raise StoreFull("authors", MAX_AUTHORS)
        size = ROW_BYTES + len(author_id) + len(user)
        self._db.execute("INSERT INTO author VALUES (?, ?, ?, ?)", (row_id, author_id, user, size))
        self._space.fit(row_id)
        return user

    def author_ids(self, session_id: str, user: str) -> list[str]:
        query = "SELECT author_id FROM author WHERE conversation = ? AND user = ?"
        rows = self._db.execute(query, (self._conversations.row_id(session_id), user))
        return sorted(author_id for (author_id,) in rows)

    # Clients

    def move_cursor(self, session_id: str, client: str, number: int) -> None:
        row_id = self._conversations.row_id(session_id)
        size = ROW_BYTES + len(client)
        self._db.execute(_MOVE, (row_id, client, number, self._clock(), size))
        self._db.execute(_FORGET, {"this": row_id, "count": MAX_CURSORS})
        self._space.fit(row_id)

    def cursor(self, session_id: str, client: str) -> int | None:
        query = "SELECT number FROM cursor WHERE conversation = ? AND client = ?"
        values = (self._conversations.row_id(session_id), client)
        row: tuple[int] | None = self._db.execute(query, values).fetchone()
        return row[0] if row else None

    def _count(self, query: str, *values: int | str) -> int:
        count: int = self._db.execute(query, values).fetchone()[0]
        return count
