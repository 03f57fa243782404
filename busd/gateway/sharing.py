"""Sharing: tasks, context, notifications, read receipts and history; steps of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from busd.gateway.conversation import Author, Task, TaskUpdate
from busd.gateway.effects import AskHistory, AskReaders, ChangeTask, MarkRead, Notify, ShareContext
from busd.gateway.entering import MAX_ENTRIES, PAGE_BYTES
from busd.gateway.events import ContextShared, Done, History, Notified, Read, Readers, TaskChanged
from busd.gateway.messages import TASK_EVENTS, context_data, event_for_agent, task_data
from busd.gateway.refusal import Refusal
from busd.gateway.speakers import check_text, claim_author, named_author
from busd.gateway.speaking import MAX_AGENTS, check_agent
from busd.gateway.stored import Outgoing
from busd.gateway.turns import AGENT_PREFIX

if TYPE_CHECKING:
    from busd.gateway.room import Room
    from busd.gateway.session import Session
    from busd.gateway.store import Store

MAX_IDS = 1_000  # of entries in one request
MAX_CONTEXT_BYTES = 256 * 1024


async def change_task(room: Room, session: Session, request: ChangeTask) -> None:
    """Keep the state of a task, show it, and tell agents."""
    check_text("task_id", request.task.task_id)
    if f"task.{request.action}" not in TASK_EVENTS:
        raise Refusal("invalid", "the action is created, updated or cancelled", detail="action")
    _check_progress(request.task)
    by = named_author(request.by or Author(""), session, room)

    def store_task(store: Store) -> tuple[Task, list[Outgoing]]:
        claim_author(store, room, session, by)
        task = store.put_task(room.session_id, request.task, update_of(room, request.task, by))
        agents = _task_agents(task, request.agents)
        rows = _events(room, agents, f"task.{request.action}", task_data(task))
        store.put_outbox(room.session_id, *rows)
        return task, rows

    task, rows = await room.hub.store.run(store_task)
    session.show(Done(request))
    changed = TaskChanged(
        room.name, task, request.action, by, False, dialect=session.dialect.prefix
    )
    room.show(changed, session)
    room.outbox.add(*rows)


def _check_progress(task: Task) -> None:
    if task.progress is not UNSET and not 0 <= task.progress <= 100:
        raise Refusal("invalid", "progress is a number from 0 to 100", detail="progress")


def update_of(room: Room, task: Task, by: Author) -> TaskUpdate:
    """Return a change of a task for its history."""
    status = "" if task.status is UNSET else task.status
    return TaskUpdate(room.hub.timestamp(), by, status, task.progress)


def _task_agents(task: Task, agents: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return who is told: those named, else the assignees, else the default agent."""
    if agents or agents is None or task.assignees is UNSET:
        return agents
    assigned = [each.id for each in task.assignees if each.type == "agent"]
    return tuple(assigned[:MAX_AGENTS])


def _events(
    room: Room, agents: tuple[str, ...] | None, event: str, data: dict[str, Any]
) -> list[Outgoing]:
    """Return the messages that tell agents of an event.

    The default agent is told if it is known: `system:route` finds agents for words only.
    """
    if agents is None:
        return []
    if len(agents) > MAX_AGENTS:
        raise Refusal("limit", f"at most {MAX_AGENTS} agents are told")
    for name in agents:
        check_agent(name)
    default = room.agent or room.hub.settings.agent
    to = [f"{AGENT_PREFIX}{name}" for name in agents] or [default]
    payload = event_for_agent(room.chat, event, data, room.hub.timestamp())
    return [
        Outgoing(message_id=f"{room.session_id}.{room.hub.new_id()}", to=each, payload=payload)
        for each in dict.fromkeys(to)
        if each.startswith(AGENT_PREFIX)
    ]


async def share_context(room: Room, session: Session, request: ShareContext) -> None:
    """Show data to all clients, and tell agents."""
    check_text("context_id", request.context_id)
    if len(request.data) > MAX_CONTEXT_BYTES:
        reason = f"shared data have at most {MAX_CONTEXT_BYTES} bytes"
        raise Refusal("limit", reason, detail="data")
    by = named_author(request.by or Author(""), session, room)
    data = context_data(request.context_id, request.data, request.agents)
    rows = _events(room, request.agents, "context.updated", data)

    def store_rows(store: Store) -> None:
        claim_author(store, room, session, by)
        store.put_outbox(room.session_id, *rows)

    await room.hub.store.run(store_rows)
    session.show(Done(request))
    shared = ContextShared(room.name, request.context_id, request.data, request.agents, by, False)
    room.show(shared, session)
    room.outbox.add(*rows)


def notify(room: Room, session: Session, effect: Notify) -> None:
    """Show a notification to the other clients; not a step, because nothing is kept."""
    presence = room.present[session]
    by = effect.by if effect.by.id else presence.author
    if room.conversation.is_room and not session.is_owner and by.id != presence.author.id:
        return
    room.show(Notified(room.name, effect.kind, by, effect.data), session, to_cause=False)


# Read receipts and history


async def mark_read(room: Room, session: Session, request: MarkRead) -> None:
    """Record who has read what, and show it to the others if it is new."""
    ids = _checked_ids(request.ids)
    by = named_author(request.by, session, room)

    def store_read(store: Store) -> list[str]:
        claim_author(store, room, session, by)
        return store.mark_read(room.session_id, ids, by.id, room.hub.timestamp())

    read = await room.hub.store.run(store_read)
    session.show(Done(request))
    if read:
        room.show(Read(room.name, tuple(read), by, False), session, to_cause=False)


async def ask_readers(room: Room, session: Session, request: AskReaders) -> None:
    """Show a client who has read entries."""
    ids = _checked_ids(request.ids)
    readers = await room.hub.store.run(lambda store: store.readers(room.session_id, ids))
    session.show(Readers(room.name, readers))
    session.show(Done(request))


def _checked_ids(ids: tuple[str, ...]) -> tuple[str, ...]:
    if len(ids) > MAX_IDS:
        raise Refusal("limit", f"at most {MAX_IDS} ids at once", detail="ids")
    return ids


async def ask_history(room: Room, session: Session, request: AskHistory) -> None:
    """Show a client entries of the past."""
    before, last = max(request.before, 0), min(max(request.last, 1), MAX_ENTRIES)
    page = await room.hub.store.run(
        lambda store: store.page(room.session_id, before=before, last=last, max_bytes=PAGE_BYTES)
    )
    session.show(History(room.name, page.entries, page.has_more))
    session.show(Done(request))
