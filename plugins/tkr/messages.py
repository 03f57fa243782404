"""What clients send with the event `message`, read and checked.

A message may be spelled in the standard way, in the legacy one or in both. What is missing and
has a clear meaning is filled in; anything else raises `BadMessage`, which names the member.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from busd_plugins.tkr.adapters import Message, legacy_to_standard
from busd_plugins.tkr.connection import Connection
from busd_plugins.tkr.values import (
    SHOWN_CHARACTERS,
    BadMessage,
    agent_name,
    id_of,
    json_of,
    object_of,
    raw_of,
    said,
    utc,
)

Id = str | int  # numbers are taken for their digits
TYPES = (
    *("text", "agent_message", "system", "error"),
    *("context_update", "task_update", "ping", "pong"),
)
CLIENT_TYPES = (*TYPES, "a2a", "task", "ack")  # that the clients of the original send as well
ACTIONS = ("create", "update", "cancel")
TASK_ACTIONS = ("subscribe", "unsubscribe", "update_status", "update_context")
_IDS = (
    *("id", "session_id", "from_agent", "to_agent", "in_reply_to"),
    *("thread_id", "prompt_id", "context_id", "task_id"),
)
_SECRETS = (
    *("token", "auth_token", "authToken", "access_token", "accessToken", "api_key", "apiKey"),
    *("auth", "authorization", "Authorization", "password"),
)
_ABSENT = (None, "")
_AT = re.compile(r"^(?P<problem>.*) - at `\$\.(?P<member>\w+)", re.DOTALL)


class Incoming(msgspec.Struct, kw_only=True):
    """A message of a client in the standard spelling."""

    id: Id
    type: str
    session_id: Id
    timestamp: str | int | float
    from_agent: str | None = None
    to_agent: str | None = None
    from_user: bool | str | None = None
    content: Any = None
    in_reply_to: Id | None = None
    streaming: bool | None = None
    turn_complete: bool | None = None
    metadata: dict[str, Any] | None = None
    thread_id: Id | None = None
    prompt_id: Id | None = None
    context_id: Id | None = None
    context_data: Any = None
    target_agents: list[str] | str | None = None
    task_id: Id | None = None
    status: str | None = None
    action: str | None = None
    result: Any = UNSET
    progress: int | float | None = None
    title: str | None = None
    data: dict[str, Any] | None = None
    error_code: str | None = None
    error_details: Any = None
    severity: str | None = None
    recoverable: bool | None = None
    original: Raw | UnsetType = UNSET  # the whole message, without secrets

    @property
    def text(self) -> str:
        """The content in the form that agents read."""
        return self.content if isinstance(self.content, str) else json_of(self.content)

    @property
    def session(self) -> str:
        """The session that it belongs to."""
        return str(self.session_id)

    @property
    def subject(self) -> str:
        """The id of the task or context that it is about."""
        return str(self.task_id or self.context_id or "")

    @property
    def is_agents(self) -> bool:
        """An agent has written it."""
        return bool(self.from_agent)

    @property
    def targets(self) -> tuple[str, ...]:
        """The agents that it is addressed to."""
        named = [self.to_agent] if self.to_agent else []
        more = [self.target_agents] if isinstance(self.target_agents, str) else self.target_agents
        return tuple(dict.fromkeys(agent_name(each) for each in [*named, *(more or [])] if each))

    @property
    def is_partial(self) -> bool:
        """It is a part of a text whose end is still to come."""
        return bool(self.streaming) and not self.turn_complete


def read_message(data: Any, connection: Connection) -> Incoming:
    """Return a client's message; raise BadMessage."""
    standard = legacy_to_standard(_with_what_is_known(object_of(data), connection))
    standard["type"] = _type_of(standard["type"])
    standard = _without_secrets(standard)
    if isinstance(metadata := standard.get("metadata"), dict):
        standard["metadata"] = _without_secrets(metadata)
    original = raw_of(standard)
    try:
        message = msgspec.convert(standard, Incoming)
    except msgspec.ValidationError as problem:
        raise _bad_member(problem) from None
    message.original = original
    for member in _IDS:
        if (found := getattr(message, member)) is not None:
            setattr(message, member, id_of(found, member))
    message.timestamp = utc(message.timestamp)
    message.from_agent = agent_name(message.from_agent or "") or None
    _check(message)
    return message


def _with_what_is_known(data: Message, connection: Connection) -> Message:
    """Return a message with what follows from its connection."""
    known = dict(data)
    if known.get("id") in _ABSENT:
        known["id"] = connection.hello.new_id()
    if known.get("timestamp") in _ABSENT:
        known["timestamp"] = connection.hello.now()
    if all(known.get(name) in _ABSENT for name in ("session_id", "sessionId")):
        known["session_id"] = connection.session
    names = ("from_agent", "fromAgent", "from_user", "fromUser")
    is_agents = connection.is_agent or known.get("type") in ("a2a", "agent_message")
    if is_agents and connection.agent and all(known.get(name) in _ABSENT for name in names):
        known["from_agent"] = connection.agent
    return known


def _without_secrets(members: Message) -> Message:
    return {name: value for name, value in members.items() if name not in _SECRETS}


def _type_of(name: Any) -> str:
    if not isinstance(name, str):
        raise BadMessage("type", f"must be a string, not {said(name)}")
    if (found := name.strip().lower().replace("-", "_")) not in CLIENT_TYPES:
        raise BadMessage("type", f"Unknown message type: {name[:SHOWN_CHARACTERS]}")
    return found


def _check(message: Incoming) -> None:
    if message.type in ("text", "system", "error"):
        _check_content(message)
    elif message.type in ("agent_message", "a2a"):
        _check_agent_message(message)
    elif message.type == "context_update":
        _require(message, "context_id", "context_data")
    elif message.type in ("task_update", "task"):
        _check_task(message)


def _check_content(message: Incoming) -> None:
    if not isinstance(message.content, str | dict | list | None):
        raise BadMessage("content", f"must be a string or an object, not {said(message.content)}")
    is_empty = message.content in (None, "", {}, [])
    if message.type == "text" and is_empty and not message.is_agents:
        raise BadMessage("content", "Text messages must have content or text")


def _check_agent_message(message: Incoming) -> None:
    _require(message, "from_agent", "content")
    if not message.targets:
        raise BadMessage("to_agent", "Agent messages must specify toAgent or to_agent")


def _check_task(message: Incoming) -> None:
    _require(message, "task_id")
    known = ACTIONS if message.type == "task_update" else TASK_ACTIONS
    if message.type == "task":
        _require(message, "action")
    if message.action and message.action not in known:
        shown = message.action[:SHOWN_CHARACTERS]
        raise BadMessage("action", f"Unknown task action: {shown}; there are {', '.join(known)}")
    if message.progress is not None and not 0 <= message.progress <= 100:
        raise BadMessage("progress", "must be between 0 and 100")


def _require(message: Incoming, *members: str) -> None:
    for member in members:
        if getattr(message, member) in (None, ""):
            raise BadMessage(member, f"Missing required field: {member}")


def _bad_member(problem: msgspec.ValidationError) -> BadMessage:
    if found := _AT.match(str(problem)):
        return BadMessage(found["member"], found["problem"])
    return BadMessage("data", str(problem))
