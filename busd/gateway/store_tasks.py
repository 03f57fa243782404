"""Tasks, polls, decisions and handoffs: their state, and what has changed it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw

from busd.gateway.conversation import Task, TaskUpdate
from busd.gateway.merge_patch import merge
from busd.gateway.schema import ROW_BYTES
from busd.gateway.store_conversations import StoreConversations
from busd.gateway.store_limits import StoreLimits
from busd.gateway.store_space import StoreSpace
from busd.gateway.stored import MAX_TASK_BYTES, MAX_TASK_UPDATES, StoreFull, Unstorable
from busd.gateway.stored_json import decoder_of, encode

_decode = decoder_of(Task)
# In the words of the dialects and of agents; they have no common list.
_ENDED = {"completed", "complete", "done", "closed", "resolved", "approved", "failed", "error"} | {
    *("cancelled", "canceled", "rejected", "declined", "expired", "timeout", "accepted")
}

_FIND = "SELECT body FROM task WHERE conversation = ? AND task_id = ?"
_PUT = """
INSERT INTO task VALUES (NULL, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE
SET changed_at = excluded.changed_at, has_ended = excluded.has_ended,
size = excluded.size, body = excluded.body
"""
_FORGET = """
DELETE FROM task WHERE id = (
    SELECT id FROM task WHERE conversation = ? AND has_ended AND task_id != ?
    ORDER BY changed_at, id LIMIT 1
)
"""


class StoreTasks:
    """The tasks of all conversations, within the caller's transaction."""

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

    def put(self, session_id: str, task: Task, update: TaskUpdate) -> Task:
        row_id = self._conversations.row_id(session_id)
        old = self._find(row_id, task.task_id)
        task = _merge(old or Task(task_id=task.task_id), task, update)
        body = encode(task)
        if len(body) > MAX_TASK_BYTES:  # changes add to it: nothing else would stop that
            raise StoreFull("task_bytes", MAX_TASK_BYTES)
        values = (self._clock(), _has_ended(task), ROW_BYTES + len(body), body)
        self._db.execute(_PUT, (row_id, task.task_id, *values))
        if not old:
            self._make_room(row_id, task.task_id)
        self._conversations.touch(row_id)
        self._space.fit(row_id)
        return task

    def _make_room(self, row_id: int, task_id: str) -> None:
        """Delete the task that ended first if there are too many."""
        query = "SELECT count(*) FROM task WHERE conversation = ?"
        (count,) = self._db.execute(query, (row_id,)).fetchone()
        is_full = count > self._limits.tasks
        if is_full and not self._db.execute(_FORGET, (row_id, task_id)).rowcount:
            raise StoreFull("tasks", self._limits.tasks)

    def find(self, session_id: str, task_id: str) -> Task | None:
        return self._find(self._conversations.row_id(session_id), task_id)

    def _find(self, row_id: int, task_id: str) -> Task | None:
        row = self._db.execute(_FIND, (row_id, task_id)).fetchone()
        return _decode(row[0]) if row else None

    def all(self, session_id: str, max_bytes: int) -> list[Task]:
        query = "SELECT body FROM task WHERE conversation = ? ORDER BY changed_at DESC, id DESC"
        tasks: list[Task] = []
        for (body,) in self._db.execute(query, (self._conversations.row_id(session_id),)):
            max_bytes -= len(body)
            if tasks and max_bytes < 0:
                break
            tasks.append(_decode(body))
        return tasks[::-1]


def _merge(old: Task, new: Task, update: TaskUpdate) -> Task:
    """Return the old state with the members of the new one that are set."""
    values = msgspec.structs.asdict(new)
    changed = {name: value for name, value in values.items() if value is not UNSET}
    if isinstance(old.data, Raw) and isinstance(new.data, Raw):
        try:
            changed["data"] = merge(old.data, new.data)
        except (ValueError, RecursionError) as problem:
            raise Unstorable(str(problem)) from None
    history = (*old.history, update)[-MAX_TASK_UPDATES:]
    return msgspec.structs.replace(old, **{**changed, "history": history})


def _has_ended(task: Task) -> bool:
    is_done = task.progress is not UNSET and task.progress >= 100
    return is_done or (task.status is not UNSET and task.status.lower() in _ENDED)
