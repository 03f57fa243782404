"""Tasks, steps and shared context: from messages to requests, and from events to messages.

An event of a task goes out twice: as `task:update`, a whole message, and as `task_event`, which is
what the client of the original listens for; shared context likewise as `context:update` and
`context`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from busd.gateway import (
    Author,
    ChangeTask,
    ContextShared,
    Effects,
    Emit,
    ShareContext,
    Step,
    Task,
    TaskChanged,
    Turn,
)
from busd_plugins.tkr.adapters import Message
from busd_plugins.tkr.connection import TASKS, Connection
from busd_plugins.tkr.frames import both_spellings, frame, said_of, value_of
from busd_plugins.tkr.messages import Incoming
from busd_plugins.tkr.values import agent_name, raw_of

_ACTIONS = {"create": "created", "update": "updated", "cancel": "cancelled"}
_ACTIONS_OUT = {said: action for action, said in _ACTIONS.items()}
_STEP_STATUS = {"in_progress": "in_progress", "complete": "completed", "failed": "failed"}
# Members of a task_update that are no data of the task.
_OF_THE_MESSAGE = (
    *("id", "type", "timestamp", "session_id", "from_agent", "to_agent", "from_user", "content"),
    *(
        "in_reply_to",
        "streaming",
        "turn_complete",
        "metadata",
        "thread_id",
        "text",
        "target_agents",
    ),
    *("task_id", "status", "action", "result", "progress", "title", "data"),
    *("agentIds", "agent_ids"),
)


def task_change(message: Incoming, by: Author) -> ChangeTask:
    """Return the request that a `task_update` or `task` makes."""
    action = message.action if message.type == "task_update" else "update"
    data = message.data or {}
    task = Task(task_id=message.subject)
    status = message.status or data.get("status")
    if isinstance(status, str):
        task.status = status
    elif action == "cancel":
        task.status = "cancelled"
    result = message.result if message.result is not UNSET else data.get("result", UNSET)
    if result is not UNSET:
        task.result = raw_of(result)
    if message.progress is not None:
        task.progress = float(message.progress)
    if message.title is not None:
        task.title = message.title
    _add_more(task, message, data)
    action = _ACTIONS[action or "update"]
    return ChangeTask(message.session, task, action, by, agents=message.targets)


def context_share(message: Incoming, by: Author) -> ShareContext:
    """Return the request that a `context_update` makes."""
    return ShareContext(
        message.session,
        message.subject,
        raw_of(message.context_data),
        message.targets,
        by,
    )


def task_events(connection: Connection, event: TaskChanged) -> Effects:
    """Show a change of a task."""
    task, hello = event.task, connection.hello
    about = _about(task)
    agent = event.by.id if event.by.type == "agent" else ""
    update = about | {
        "id": hello.new_id(),
        "type": "task_update",
        "timestamp": hello.now(),
        "session_id": event.conversation,
        "task_id": task.task_id,
        "action": _ACTIONS_OUT.get(event.action, "update"),
        "metadata": {"author": said_of(event.by)},
    }
    update |= {"from_agent": agent} if agent else {"from_user": True}
    yield from _events(connection, both_spellings(update), about, agent)


def step_events(connection: Connection, session: str, turn: Turn, step: Step, new: bool) -> Effects:
    """Show a step of a turn as a task: its id is the task's, its payload the result."""
    hello, payload = connection.hello, value_of(step.payload)
    status = _STEP_STATUS[step.status]
    about: Message = {"id": step.id, "title": step.name, "status": status}
    if step.payload is not UNSET and payload not in ("", None):
        about["result"] = payload
    more = {"turn": turn.id, "name": step.name, "tool": step.tool, "parent": step.parent}
    said = {name: value for name, value in more.items() if value}
    if step.arguments is not UNSET:
        said["arguments"] = value_of(step.arguments)
    update = frame(
        "task_update",
        message_id=hello.new_id(),
        timestamp=hello.now(),
        session=session,
        from_agent=turn.agent.id or None,
        in_reply_to=turn.id,
        task_id=step.id,
        action="create" if new else "update",
        status=status,
        title=step.name,
        result=about.get("result"),
        error_code=step.code or None,
        metadata=said,
        thread_id=turn.thread_id or None,
    )
    yield from _events(connection, update, about | {"metadata": said}, turn.agent.id)


def context_events(connection: Connection, event: ContextShared) -> Effects:
    """Show data that were shared with agents."""
    data, now = value_of(event.data), connection.hello.now()
    update = frame(
        "context_update",
        message_id=connection.hello.new_id(),
        timestamp=now,
        session=event.conversation,
        from_agent=event.by.id if event.by.type == "agent" else None,
        from_user=True if event.by.type == "user" else None,
        context_id=event.context_id,
        target_agents=list(event.agents) or None,
    )
    # Any value may be shared, null included.
    yield Emit("context:update", update | {"context_data": data, "contextData": data})
    said = {
        "type": "context:update",
        "context_id": event.context_id,
        "session_id": event.conversation,
        "source_agent_id": event.by.id,
        "context_data": data,
        "timestamp": now,
    }
    yield Emit("context", said)


def room_event(connection: Connection, kind: str, task_id: str) -> Emit:
    """Return the event that tells that a task's room was entered or left."""
    said = {"type": kind, "task_id": task_id, "timestamp": connection.hello.now()}
    return Emit("task_event", said)


def _add_more(task: Task, message: Incoming, data: Message) -> None:
    """Add what else a message says of its task, and who is to do it."""
    original = {} if message.original is UNSET else msgspec.json.decode(message.original)
    named = original.get("agentIds") or original.get("agent_ids")
    if isinstance(named, list) and named and all(isinstance(each, str) for each in named):
        task.assignees = tuple(Author(agent_name(each), "agent") for each in named)
    more = {name: value for name, value in original.items() if name not in _OF_THE_MESSAGE}
    more |= {name: value for name, value in data.items() if name not in ("status", "result")}
    if message.content is not None:
        more["content"] = message.content
    if more:
        task.data = raw_of(more)


def _about(task: Task) -> Message:
    """Return what is known of a task; members that are not set are left out."""
    said: dict[str, Any] = {
        "id": task.task_id,
        "title": task.title,
        "status": task.status,
        "progress": UNSET if task.progress is UNSET else _number(float(task.progress)),
    }
    if task.kind not in (UNSET, "task"):
        said["kind"] = task.kind
    known = {name: value for name, value in said.items() if value is not UNSET}
    if task.result is not UNSET:
        known["result"] = value_of(task.result)
    if task.assignees is not UNSET:
        known["agent_ids"] = [each.id for each in task.assignees]
    data = value_of(task.data)
    return {**data, **known} if isinstance(data, dict) else known


def _number(value: float) -> int | float:
    """Return a number without a fraction as an integer."""
    return int(value) if value.is_integer() else value


def _events(connection: Connection, update: Message, about: Message, agent: str) -> Effects:
    yield Emit("task:update", update)
    said = {
        "type": "task:update" if connection.namespace == TASKS else "task_update",
        "task_id": update["task_id"],
        "status": about.get("status"),
        "result": about.get("result"),
        "message": about.get("title"),
        "agent_id": agent or None,
        "task_data": about,
        "timestamp": update["timestamp"],
    }
    yield Emit("task_event", {name: value for name, value in said.items() if value is not None})
