"""Messages of conversations that the bus has not accepted yet."""

from __future__ import annotations

import sqlite3

from busd.gateway.schema import ROW_BYTES
from busd.gateway.store_conversations import StoreConversations
from busd.gateway.store_limits import StoreLimits
from busd.gateway.store_space import StoreSpace
from busd.gateway.stored import NameTaken, Outgoing, StoreFull

_INSERT = "INSERT INTO outbox VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)"
_FIRST = """
SELECT message_id, target, payload, number, slot FROM outbox
WHERE conversation = ? ORDER BY id LIMIT ?
"""


class StoreOutbox:
    """The unsent messages of all conversations, within the caller's transaction."""

    def __init__(
        self,
        db: sqlite3.Connection,
        limits: StoreLimits,
        conversations: StoreConversations,
        space: StoreSpace,
    ) -> None:
        self._db, self._limits = db, limits
        self._conversations, self._space = conversations, space

    def put(self, session_id: str, messages: tuple[Outgoing, ...]) -> None:
        row_id = self._conversations.row_id(session_id)
        for each in messages:
            size = ROW_BYTES + len(each.payload)
            values = (row_id, each.message_id, each.to, each.number, each.slot, size, each.payload)
            try:
                self._db.execute(_INSERT, values)
            except sqlite3.IntegrityError:
                raise NameTaken(f"message {each.message_id} is in the outbox already") from None
        query = "SELECT count(*) FROM outbox WHERE conversation = ?"
        (count,) = self._db.execute(query, (row_id,)).fetchone()
        if count > self._limits.outbox:
            raise StoreFull("outbox", self._limits.outbox)
        self._space.fit(row_id)

    def first(self, session_id: str, limit: int) -> list[Outgoing]:
        rows = self._db.execute(_FIRST, (self._conversations.row_id(session_id), limit))
        return [
            Outgoing(message_id=message_id, to=to, payload=payload, number=number, slot=slot)
            for message_id, to, payload, number, slot in rows
        ]

    def remove(self, session_id: str, message_id: str) -> bool:
        delete = "DELETE FROM outbox WHERE conversation = ? AND message_id = ?"
        values = (self._conversations.row_id(session_id), message_id)
        return self._db.execute(delete, values).rowcount > 0
