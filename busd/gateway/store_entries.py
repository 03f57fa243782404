"""Entries: they are kept in order, amended and paged; and who has read them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from busd.gateway.conversation import Entry
from busd.gateway.schema import ROW_BYTES
from busd.gateway.store_conversations import StoreConversations
from busd.gateway.store_space import MAX_INTEGER, StoreSpace
from busd.gateway.stored import Kept, Page
from busd.gateway.stored_json import decoder_of, encode

_decode = decoder_of(Entry)

_BY_ID = "SELECT body FROM entry WHERE conversation = ? AND entry_id = ?"
_BY_ORIGIN = "SELECT body FROM entry WHERE conversation = ? AND origin = ?"
_NEXT = "UPDATE conversation SET last_number = last_number + 1 WHERE id = ? RETURNING last_number"
_INSERT = "INSERT INTO entry VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)"
_UPDATE = "UPDATE entry SET size = ?, body = ? WHERE conversation = ? AND number = ?"
_NUMBER = "SELECT number FROM entry WHERE conversation = ? AND entry_id = ?"
_PAGE = """
SELECT body FROM entry WHERE conversation = ? AND number > ? AND number < ?
ORDER BY number DESC LIMIT ?
"""
_MARK = """
INSERT INTO receipt SELECT conversation, id, ?, ?, ? FROM entry
WHERE conversation = ? AND entry_id = ? ON CONFLICT DO NOTHING
"""
_READERS = """
SELECT reader, at FROM receipt WHERE entry = (
    SELECT id FROM entry WHERE conversation = ? AND entry_id = ?
) LIMIT ?
"""


class StoreEntries:
    """The entries of all conversations, within the caller's transaction."""

    def __init__(
        self,
        db: sqlite3.Connection,
        clock: Callable[[], float],
        conversations: StoreConversations,
        space: StoreSpace,
    ) -> None:
        self._db, self._clock, self._conversations, self._space = db, clock, conversations, space

    def keep(self, session_id: str, entry: Entry, origin: str) -> Kept:
        if not entry.id:
            raise ValueError("an entry without an id cannot be kept")
        row_id = self._conversations.row_id(session_id)
        known = self._find(_BY_ID, row_id, entry.id)
        if not known and origin:
            known = self._find(_BY_ORIGIN, row_id, origin)
        if known:
            return Kept(known, True)
        (number,) = self._db.execute(_NEXT, (row_id,)).fetchall()[0]
        entry = msgspec.structs.replace(entry, number=number)
        body = encode(entry)
        size, now = ROW_BYTES + len(body), self._clock()
        values = (row_id, number, entry.id, origin or None, now, size, body)
        self._db.execute(_INSERT, values)
        self._conversations.touch(row_id)
        self._space.fit(row_id, before=number)
        return Kept(entry, False)

    def amend(self, session_id: str, entry: Entry) -> Entry | None:
        row_id = self._conversations.row_id(session_id)
        old = self._find(_BY_ID, row_id, entry.id)
        if not old:
            return None
        timestamp = entry.timestamp or old.timestamp
        entry = msgspec.structs.replace(entry, number=old.number, timestamp=timestamp)
        body = encode(entry)
        self._db.execute(_UPDATE, (ROW_BYTES + len(body), body, row_id, entry.number))
        self._space.fit(row_id, before=entry.number)
        return entry

    def find_entry(self, session_id: str, entry_id: str) -> Entry | None:
        return self._find(_BY_ID, self._conversations.row_id(session_id), entry_id)

    def find_origin(self, session_id: str, origin: str) -> Entry | None:
        return self._find(_BY_ORIGIN, self._conversations.row_id(session_id), origin)

    def _find(self, query: str, *values: Any) -> Entry | None:
        row = self._db.execute(query, values).fetchone()
        return _decode(row[0]) if row else None

    def page(
        self, session_id: str, after: str, since: int, before: int, last: int, max_bytes: int
    ) -> Page:
        row_id = self._conversations.row_id(session_id)
        if after:
            row = self._db.execute(_NUMBER, (row_id, after)).fetchone()
            since = row[0] if row else since
        end = before if 0 < before < MAX_INTEGER else MAX_INTEGER
        count = min(max(last, 0), MAX_INTEGER - 1)
        entries: list[Entry] = []
        for (body,) in self._db.execute(_PAGE, (row_id, since, end, count + 1)):
            max_bytes -= len(body)
            if len(entries) == count or (entries and max_bytes < 0):
                return Page(entries[::-1], True)
            entries.append(_decode(body))
        return Page(entries[::-1], False)

    # Read receipts

    def mark_read(self, session_id: str, ids: Iterable[str], reader: str, at: str) -> list[str]:
        row_id = self._conversations.row_id(session_id)
        size = ROW_BYTES + len(reader) + len(at)
        marked = [
            entry_id
            for entry_id in ids
            if self._db.execute(_MARK, (reader, at, size, row_id, entry_id)).rowcount > 0
        ]
        if marked:
            self._space.fit(row_id)
        return marked

    def readers(self, session_id: str, ids: Iterable[str], limit: int) -> dict[str, dict[str, str]]:
        row_id = self._conversations.row_id(session_id)
        found: dict[str, dict[str, str]] = {}
        for entry_id in ids:
            if limit <= 0:
                break
            if self._db.execute(_BY_ID, (row_id, entry_id)).fetchone():
                found[entry_id] = dict(self._db.execute(_READERS, (row_id, entry_id, limit)))
                limit -= max(len(found[entry_id]), 1)
        return found
