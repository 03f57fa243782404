"""What a client is answered: acks in the form of its namespace, and the event `error`."""

from __future__ import annotations

from typing import Any

from busd.gateway import Acknowledge, Effects, Emit, Refused, SocketFrame
from busd_plugins.tkr.connection import AGENTS, Connection
from busd_plugins.tkr.messages import Incoming
from busd_plugins.tkr.values import BadMessage, id_of, raw_of

VALIDATION = "socket.message.validation"
# By the rule that a request was refused by: error code, category, severity. The severity "error"
# makes clients show their connection as broken, so it is for what concerns the connection.
_CODES = {
    "unauthenticated": ("socket.auth.required", "authentication", "error"),
    "authentication": ("socket.auth.invalid", "authentication", "error"),
    "author": ("socket.permission.denied", "authorization", "warning"),
    "conversation": ("socket.room.access_denied", "authorization", "warning"),
    "member": ("socket.room.access_denied", "authorization", "warning"),
    "agent": ("socket.message.delivery", "message", "warning"),
    "limit": ("socket.message.rate_limit", "rate_limit", "warning"),
    "busy": ("socket.server.error", "internal", "warning"),
}
# The member of a message that is at fault: by the rule, and by the gateway's name for it.
_FIELDS = {
    "prompt": "prompt_id",
    "option": "content",
    "agent": "to_agent",
    "author": "from_agent",
    "conversation": "session_id",
    "member": "session_id",
}
_MEMBERS = {
    "entry.id": "id",
    "entry.text": "content",
    "author.id": "from_agent",
    "author.name": "from_user",
    "conversation": "session_id",
    "client": "client_id",
}
_INVALID = (VALIDATION, "message", "warning")


def acknowledge(frame: SocketFrame, data: Any) -> Effects:
    """Answer a client that waits for an answer."""
    if frame.wants_ack:
        yield Acknowledge(frame, data)


def success(
    connection: Connection, message: Incoming, given_id: Any, stored_id: str | int
) -> dict[str, Any]:
    """Return the ack of a message that was performed."""
    now = connection.hello.now()
    if connection.namespace == AGENTS:
        received = {"status": "received", "timestamp": now, "message_id": given_id}
        if message.type != "text" or message.is_agents:
            return received
        return received | {"status": "delivered", "persisted": True, "persistedId": stored_id}
    if message.type in ("task_update", "task"):
        about = {"taskId": message.subject}
    elif message.type == "context_update":
        about = {"contextId": message.subject}
    else:
        delivered = {"status": "delivered", "id": given_id, "persistedId": stored_id}
        return {**delivered, "timestamp": now}
    return {"status": "success", "id": given_id, **about, "timestamp": now}


def failure(connection: Connection, given_id: Any, problem: str) -> dict[str, Any]:
    """Return the ack of a message that was not performed."""
    if connection.namespace == AGENTS:
        return {"status": "error", "message": problem, "timestamp": connection.hello.now()}
    return {"status": "error", "id": given_id, "message": problem}


def error_event(
    connection: Connection,
    problem: str,
    *,
    codes: tuple[str, str, str] = _INVALID,
    details: dict[str, Any] | None = None,
    recoverable: bool = True,
) -> Emit:
    """Return the event `error` in its long form."""
    code, category, severity = codes
    said: dict[str, Any] = {
        "error_code": code,
        "message": problem,
        "category": category,
        "severity": severity,
        "details": details or {},
        "timestamp": connection.hello.now(),
        "request_id": connection.hello.new_id(),
        "recoverable": recoverable,
        "retry_suggested": False,  # clients take it as the advice to connect again
        "session_id": connection.given_session,
        "agent_id": connection.agent,
    }
    return Emit("error", {name: value for name, value in said.items() if value != ""})


def room_error(problem: str, *, kind: str = "validation", **details: Any) -> Emit:
    """Return the event `error` in the short form that `join` and `leave` have."""
    return Emit("error", {"type": kind, "message": problem, "details": details})


def bad_message(
    connection: Connection, frame: SocketFrame, given_id: Any, problem: BadMessage
) -> Effects:
    """Answer a message that cannot be understood."""
    details = {"field": problem.member, "problem": problem.problem, "message_id": given_id}
    yield error_event(connection, f"Validation error: {problem}", details=details)
    yield from acknowledge(frame, failure(connection, given_id, str(problem)))


def refused(connection: Connection, frame: SocketFrame, given_id: Any, event: Refused) -> Effects:
    """Answer a message that the gateway refuses."""
    yield refusal(connection, event, message_id=given_id)
    yield from acknowledge(frame, failure(connection, given_id, event.reason))


def refusal(connection: Connection, event: Refused, **details: Any) -> Emit:
    """Return the event `error` for a request that the gateway refuses."""
    details |= about_refusal(event)
    if event.retry_seconds is not None:
        details["retry_seconds"] = event.retry_seconds
    return error_event(
        connection,
        event.reason,
        codes=codes_of(event.rule),
        details=details,
        recoverable=event.rule not in ("author", "authentication", "member"),
    )


def about_refusal(event: Refused) -> dict[str, Any]:
    """Return the rule, and the member or value that is at fault."""
    about = {"rule": event.rule}
    if event.rule == "limit":
        about |= {"limit": event.detail}
    elif event.rule == "invalid":
        about |= {"field": _MEMBERS.get(event.detail, event.detail)}
    else:
        about |= {"field": _FIELDS.get(event.rule, ""), "value": event.detail}
    return {name: value for name, value in about.items() if value}


def codes_of(rule: str) -> tuple[str, str, str]:
    """Return error code, category and severity for a rule."""
    return _CODES.get(rule, _INVALID)


def given_id(data: Any, default: str | int) -> Any:
    """Return the id of a message as its client spells it."""
    found = data.get("id") if isinstance(data, dict) else None
    try:
        return found if id_of(found, "id") and raw_of(found) else default
    except BadMessage:
        return default
