"""The limits of the store: what is deleted so that the rest fits, and when nothing helps."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection

from busd.database import read_number, read_pragma
from busd.gateway.schema import BELONGINGS
from busd.gateway.store_limits import StoreLimits
from busd.gateway.stored import StoreFull, StoreTotals
from busd.journal.retention import DAY_SECONDS, STEP_PAGES

MAX_INTEGER = 2**63 - 1  # in SQLite
_STEP_ROWS = 500  # deleted at once
_SLACK_BYTES = 1024 * 1024  # deleted beyond what is needed when all conversations are too large

HAS_WORK = """
(EXISTS (SELECT 1 FROM turn WHERE turn.conversation = conversation.id AND how IS NULL)
OR EXISTS (SELECT 1 FROM outbox WHERE outbox.conversation = conversation.id))
"""
_SIZES = """
SELECT conversation.entries, conversation.bytes, total.bytes FROM conversation, total WHERE id = ?
"""
_OLDEST = "SELECT number, size FROM entry WHERE conversation = ? AND number < ? ORDER BY number"
# Whoever keeps most loses first: a user who fills the disk does so at their own expense.
_LARGEST = """
SELECT id, conversation.bytes FROM conversation JOIN owner USING (user)
WHERE CASE WHEN id = :this
    THEN EXISTS (SELECT 1 FROM entry WHERE conversation = :this AND number < :before)
    ELSE entries END
ORDER BY owner.bytes DESC, conversation.bytes DESC LIMIT 1
"""
_UNUSED = f"""
SELECT id, session_id FROM conversation
WHERE last_used < ? AND NOT entries AND NOT {HAS_WORK} ORDER BY last_used
"""  # noqa: S608 - the part is a constant
_DELETE_OLD = """
DELETE FROM {0} WHERE id IN (SELECT id FROM {0} WHERE {1} < ? ORDER BY {1} LIMIT ?)
"""
_TOTALS = """
SELECT conversations, entries, bytes,
(SELECT count(*) FROM turn WHERE how IS NULL), (SELECT count(*) FROM outbox) FROM total
"""


class StoreSpace:
    """What there is room for, within the caller's transaction."""

    def __init__(
        self, db: sqlite3.Connection, limits: StoreLimits, clock: Callable[[], float]
    ) -> None:
        self._db, self._limits, self._clock = db, limits, clock

    def totals(self) -> StoreTotals:
        return StoreTotals(*self._db.execute(_TOTALS).fetchone())

    # After something was added

    def fit(self, conversation: int, before: int = MAX_INTEGER) -> None:
        """Delete oldest entries until the limits hold; raise StoreFull if that does not help.

        Of this conversation only entries with a number below `before` are deleted.
        """
        limits = self._limits
        while True:
            entries, size, total = self._db.execute(_SIZES, (conversation,)).fetchone()
            excess = size - limits.conversation_bytes
            if entries > limits.entries or excess > 0:
                if not self._delete_oldest(conversation, before, entries - limits.entries, excess):
                    raise StoreFull("conversation_bytes", limits.conversation_bytes)
            elif total > limits.total_bytes:
                self._shrink(conversation, before, total - limits.total_bytes)
            else:
                return

    def _shrink(self, conversation: int, before: int, excess: int) -> None:
        """Delete the oldest entries of the largest conversation of the user who keeps most."""
        found = self._db.execute(_LARGEST, {"this": conversation, "before": before}).fetchone()
        if not found:
            raise StoreFull("total_bytes", self._limits.total_bytes)
        largest, size = found
        # Half of it at most: then another one may be the largest.
        slack = min(_SLACK_BYTES, self._limits.total_bytes // 64)
        enough = max(min(excess + slack, size // 2), 1)
        end = before if largest == conversation else MAX_INTEGER
        self._delete_oldest(largest, end, 0, enough)

    def _delete_oldest(self, conversation: int, before: int, count: int, size: int) -> bool:
        """Delete at least so many entries and bytes, or what there is; return whether any was."""
        last = 0
        for number, entry_size in self._db.execute(_OLDEST, (conversation, before)):
            last = number
            count, size = count - 1, size - entry_size
            if count <= 0 and size <= 0:
                break
        delete = "DELETE FROM entry WHERE conversation = ? AND number <= ?"
        return self._db.execute(delete, (conversation, last)).rowcount > 0

    def delete(self, conversation: int) -> None:
        """Delete a conversation with all that belongs to it."""
        for table in BELONGINGS:  # read receipts go with their entries
            self._db.execute(
                f"DELETE FROM {table} WHERE conversation = ?",  # noqa: S608 - a constant
                (conversation,),
            )
        self._db.execute("DELETE FROM conversation WHERE id = ?", (conversation,))

    # As time goes by

    def upkeep(self, held: Collection[str]) -> bool:
        cutoff = self._clock() - self._limits.keep_days * DAY_SECONDS
        return (
            self._has_deleted("entry", "kept_at", cutoff)
            or self._has_deleted("task", "changed_at", cutoff)
            or self._has_deleted_unused(cutoff, held)
            or self._has_shrunk_file()
        )

    def _has_deleted(self, table: str, time: str, cutoff: float) -> bool:
        delete = _DELETE_OLD.format(table, time)
        return self._db.execute(delete, (cutoff, _STEP_ROWS)).rowcount > 0

    def _has_deleted_unused(self, cutoff: float, held: Collection[str]) -> bool:
        unused = []
        for number, session_id in self._db.execute(_UNUSED, (cutoff,)):
            if session_id not in held:
                unused.append(number)
            if len(unused) == _STEP_ROWS:
                break
        for number in unused:
            self.delete(number)
        return bool(unused)

    def _has_shrunk_file(self) -> bool:
        """Return some free pages to the file system, unless there are few."""
        db = self._db
        free, pages = read_pragma(db, "freelist_count"), read_pragma(db, "page_count")
        if free <= max(STEP_PAGES, pages // 8):
            return False
        for _ in range(STEP_PAGES):
            db.execute("PRAGMA incremental_vacuum(1)")  # execute() stops after the first page
        return read_number(db, "PRAGMA freelist_count") < free
