"""Rooms: `session_<id>`, `agent_<id>` and `task_<id>`, joined and left by events.

The room of a session is a conversation of the gateway. The room of an agent gets the messages of
other agents to that one as `a2a`; the room of a task gets its changes in the namespace `/tasks`.
"""

from __future__ import annotations

from typing import Any

from busd.gateway import Done, Emit, Enter, Refused
from busd_plugins.tkr.answers import about_refusal, room_error
from busd_plugins.tkr.connection import MAX_HISTORY, MAX_ROOMS, MAX_SESSIONS, Connection
from busd_plugins.tkr.values import BadMessage, agent_name, id_of, object_of

ROOM_TYPES = ("session", "agent", "task")
_LAST_ID = ("last_message_id", "lastMessageId")


class Room:
    """What a `join` or `leave` names."""

    def __init__(self, data: Any) -> None:
        """Read it; raise BadMessage."""
        said = object_of({} if data is None else data)
        kind = said.get("type")
        self.kind: str = "session" if kind is None else kind
        if self.kind not in ROOM_TYPES:
            raise BadMessage("type", f"Unknown room type: {str(kind)[:80]}")
        self.id = id_of(said.get("id"), "id")
        if not self.id:
            raise BadMessage("id", "Missing room ID")
        given = {name: id_of(said.get(name), name) for name in _LAST_ID}
        self.last_id = given["last_message_id"] or given["lastMessageId"]
        self.history = _count(said.get("history"))

    @property
    def name(self) -> str:
        """The name of the agent whose room it is."""
        return agent_name(self.id)

    @property
    def asks_for_more(self) -> bool:
        """It asks for messages of the past."""
        return bool(self.last_id or self.history)


def bad_room(problem: BadMessage) -> Emit:
    """Return the error for a `join` or `leave` that cannot be understood."""
    details: dict[str, Any] = {"field": problem.member}
    if problem.member == "type":
        details["supported_types"] = list(ROOM_TYPES)
    elif problem.problem == "Missing room ID":
        details["required_fields"] = ["id"]
    return room_error(problem.problem, **details)


def outcome_of(
    connection: Connection, event: str, room: Room, outcome: Done | Refused | None
) -> Emit:
    """Return the event that a room was `joined` or `left`, or why not."""
    if isinstance(outcome, Refused):
        verb = "join" if event == "joined" else "leave"
        problem = f"Failed to {verb} room: {outcome.reason}"
        kind = "validation" if outcome.rule == "invalid" else "server"
        return room_error(problem, kind=kind, **about_refusal(outcome))
    said = {"room_type": room.kind, "room_id": room.id, "timestamp": connection.hello.now()}
    return Emit(event, said)


def enter(connection: Connection, session: str, room: Room | None = None) -> Enter:
    """Return the request to enter a session.

    Shown is what came after the last message that the client names, or so many of the last ones as
    it asks for, else what came since the gateway last showed something to this client.
    """
    query = connection.hello.query
    last_id = room.last_id if room and room.asks_for_more else connection.last_id
    history = room.history if room and room.asks_for_more else _count(query.get("history"))
    return Enter(
        session,
        connection.user,
        after=last_id,
        last=0 if last_id else history,
        client=connection.name,
    )


def no_place(connection: Connection, session: str) -> Refused | None:
    """Return why the connection cannot enter one more session, None if it can."""
    if session in connection.sessions or len(connection.sessions) < MAX_SESSIONS:
        return None
    reason = f"you are in {MAX_SESSIONS} sessions; leave one first"
    return Refused(Enter(session), "limit", reason, detail="sessions")


def join(joined: set[str], name: str) -> Refused | None:
    """Join the room of an agent or task; return why not, or None."""
    if name not in joined and len(joined) >= MAX_ROOMS:
        reason = f"you are in {MAX_ROOMS} rooms of this type; leave one first"
        return Refused(Enter(name), "limit", reason, detail="rooms")
    joined.add(name)
    return None


def subscription(data: Any, session: str) -> tuple[str, str]:
    """Return the session and the task that a `subscribe` names; raise BadMessage."""
    said = object_of({} if data is None else data)
    found = {name: id_of(said.get(name), name) for name in ("task_id", "taskId")}
    if not (task_id := found["task_id"] or found["taskId"]):
        raise BadMessage("task_id", "Missing task ID")
    named = id_of(said.get("session_id", said.get("sessionId")), "session_id")
    return named or session, task_id


def _count(value: Any) -> int:
    """Return how many messages of the past are asked for."""
    try:
        return min(max(int(value or 0), 0), MAX_HISTORY)
    except (TypeError, ValueError, OverflowError):
        return 0
