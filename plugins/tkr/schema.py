"""Every kind of message of this dialect, for its AsyncAPI document.

A message has its members in the standard spelling (`session_id`) and in the legacy one
(`sessionId`). The gateway sends both, and accepts either.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from busd.gateway import MessageKind

Text = str | UnsetType
Flag = bool | UnsetType
Names = list[str] | UnsetType
MessageId = str | int


class Message(Struct, kw_only=True):
    """What all messages share."""

    id: MessageId | UnsetType | None = UNSET
    timestamp: str | float | UnsetType | None = UNSET
    session_id: Text = UNSET
    from_agent: Text = UNSET
    to_agent: Text = UNSET
    from_user: bool | str | UnsetType = UNSET
    content: Any = UNSET
    text: Text = UNSET
    in_reply_to: Text = UNSET
    streaming: Flag = UNSET
    turn_complete: Flag = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    thread_id: Text = UNSET
    legacy_session_id: Text = field(default=UNSET, name="sessionId")
    legacy_from_agent: Text = field(default=UNSET, name="fromAgent")
    legacy_to_agent: Text = field(default=UNSET, name="toAgent")
    legacy_from_user: bool | str | UnsetType = field(default=UNSET, name="fromUser")
    legacy_in_reply_to: Text = field(default=UNSET, name="inReplyTo")
    legacy_turn_complete: Flag = field(default=UNSET, name="turnComplete")


class Shown(Message, kw_only=True):
    """What all messages share that the gateway sends."""

    id: str
    timestamp: str
    session_id: str
    legacy_session_id: str = field(name="sessionId")
    message: Text = UNSET  # the text for a client that shows only what it does not know
    agent_id: Text = UNSET  # whose text that is


class TextMessage(Message, kw_only=True):
    """A text of a user, or of an agent that is a client."""

    type: Literal["text"] | UnsetType = UNSET
    prompt_id: Text = UNSET
    target_agents: Names = UNSET


class ShownText(Shown, kw_only=True):
    """A text of an agent or of another user.

    An answer in the making has one id and one time, `streaming` and the whole text so far; the last
    frame has `turn_complete`.
    """

    type: Literal["text"]


class AgentMessage(Message, kw_only=True):
    """A message of one agent to another."""

    type: Literal["agent_message", "a2a"]
    task_id: Text = UNSET
    legacy_task_id: Text = field(default=UNSET, name="taskId")
    target_agents: Names = UNSET


class ShownAgentMessage(Shown, kw_only=True):
    """A message of one agent to another."""

    type: Literal["agent_message"]
    task_id: Text = UNSET
    legacy_task_id: Text = field(default=UNSET, name="taskId")


class SystemMessage(Message, kw_only=True):
    """A notice."""

    type: Literal["system"]
    severity: Text = UNSET


class ShownSystemMessage(Shown, kw_only=True):
    """A notice, or the question of an agent: its options are in `metadata`."""

    type: Literal["system"]
    severity: Text = UNSET


class ErrorMessage(Message, kw_only=True):
    """A fault that a client reports."""

    type: Literal["error"]
    error_code: Text = UNSET
    error_details: Any = UNSET
    severity: Text = UNSET
    recoverable: Flag = UNSET


class ShownErrorMessage(Shown, kw_only=True):
    """The failure of an agent's answer."""

    type: Literal["error"]
    error_code: Text = UNSET
    error_details: Any = UNSET
    severity: Text = UNSET
    recoverable: Flag = UNSET
    legacy_error_code: Text = field(default=UNSET, name="errorCode")
    legacy_error_details: Any = field(default=UNSET, name="errorDetails")


class ContextUpdate(Message, kw_only=True):
    """Data that are shared with agents."""

    type: Literal["context_update"]
    context_id: Text = UNSET
    context_data: Any = UNSET
    target_agents: Names = UNSET
    legacy_context_id: Text = field(default=UNSET, name="contextId")
    legacy_context_data: Any = field(default=UNSET, name="contextData")
    legacy_target_agents: Names = field(default=UNSET, name="targetAgents")


class ShownContextUpdate(ContextUpdate, kw_only=True):
    """Data that were shared with agents."""

    id: str
    timestamp: str
    session_id: str
    context_id: str


class TaskUpdate(Message, kw_only=True):
    """A task that is created, changed or cancelled."""

    type: Literal["task_update"]
    task_id: Text = UNSET
    status: Text = UNSET
    action: Literal["create", "update", "cancel"] | UnsetType = UNSET
    result: Any = UNSET
    title: Text = UNSET
    progress: float | UnsetType = UNSET
    agent_ids: Names = UNSET
    legacy_task_id: Text = field(default=UNSET, name="taskId")


class ShownTaskUpdate(TaskUpdate, kw_only=True):
    """A task that was created, changed or cancelled, or a step of an agent's work."""

    id: str
    timestamp: str
    session_id: str
    task_id: str
    kind: Text = UNSET
    error_code: Text = UNSET
    legacy_error_code: Text = field(default=UNSET, name="errorCode")


class TaskCommand(Message, kw_only=True):
    """A command of the original's client: subscribe to a task, or change it."""

    type: Literal["task"]
    task_id: str
    action: Literal["subscribe", "unsubscribe", "update_status", "update_context"]
    data: dict[str, Any] | UnsetType = UNSET


class Sign(Message, kw_only=True):
    """A sign of life."""

    type: Literal["ping", "pong"]


class Time(Struct):
    """A sign of life."""

    timestamp: Text = UNSET


class RoomRequest(Struct, kw_only=True):
    """A room to join or to leave; with messages of the past, if it is a session's."""

    id: str
    type: Literal["session", "agent", "task"] = "session"
    last_message_id: Text = UNSET
    history: int | UnsetType = UNSET


class RoomChange(Struct):
    """A room was joined or left."""

    room_type: str
    room_id: str
    timestamp: str


class TaskRequest(Struct, kw_only=True):
    """A task to subscribe to, or not any more."""

    task_id: str
    session_id: Text = UNSET  # default: that of the connection


class ConnectStatus(Struct, kw_only=True):
    """The first event of a connection."""

    connected: bool
    socket_id: str
    agent_id: Text = UNSET
    session_id: Text = UNSET
    namespace: Text = UNSET


class TaskEvent(Struct, kw_only=True):
    """A change of a task, a step of an agent's work, or the end or beginning of a subscription."""

    type: Literal["task_update", "task:update", "subscribed", "unsubscribed"]
    task_id: str
    timestamp: str
    status: Text = UNSET
    result: Any = UNSET
    message: Text = UNSET
    agent_id: Text = UNSET
    task_data: dict[str, Any] | UnsetType = UNSET


class ContextEvent(Struct, kw_only=True):
    """Data that were shared with agents."""

    type: Literal["context:update"]
    context_id: str
    session_id: str
    source_agent_id: str
    context_data: Any
    timestamp: str


class AgentToAgent(Struct, kw_only=True):
    """A message to the agent whose room the client is in."""

    type: Literal["agent_message"]
    from_agent: str
    to_agent: str
    content: Any
    timestamp: str
    session_id: str
    task_id: Text = UNSET


class SocketError(Struct, kw_only=True):
    """A message was invalid or refused; or, with `type`, a room could not be joined or left."""

    message: str
    details: dict[str, Any]
    type: Literal["validation", "server"] | UnsetType = UNSET
    error_code: Text = UNSET
    category: Text = UNSET
    severity: Text = UNSET
    timestamp: Text = UNSET
    request_id: Text = UNSET
    recoverable: Flag = UNSET
    retry_suggested: Flag = UNSET
    session_id: Text = UNSET
    agent_id: Text = UNSET


def _received(event: str, struct: type[Struct]) -> MessageKind:
    return MessageKind(struct.__name__, "receive", struct, event=event)


def _sent(event: str, struct: type[Struct]) -> MessageKind:
    return MessageKind(struct.__name__, "send", struct, event=event)


MESSAGES = (
    *(_received("message", each) for each in (TextMessage, AgentMessage, SystemMessage)),
    *(_received("message", each) for each in (ErrorMessage, ContextUpdate, TaskUpdate)),
    *(_received("message", each) for each in (TaskCommand, Sign)),
    MessageKind("Join", "receive", RoomRequest, "Join a room.", "join"),
    MessageKind("Leave", "receive", RoomRequest, "Leave a room.", "leave"),
    MessageKind("Subscribe", "receive", TaskRequest, "Subscribe to a task.", "subscribe"),
    MessageKind("Unsubscribe", "receive", TaskRequest, "End a subscription.", "unsubscribe"),
    MessageKind("Ping", "receive", Time, "Ask for a sign of life.", "ping"),
    MessageKind("PongIn", "receive", Time, "Answer a ping.", "pong"),
    *(_sent("message", each) for each in (ShownText, ShownAgentMessage)),
    *(_sent("message", each) for each in (ShownSystemMessage, ShownErrorMessage)),
    _sent("task:update", ShownTaskUpdate),
    _sent("task_event", TaskEvent),
    _sent("context:update", ShownContextUpdate),
    _sent("context", ContextEvent),
    _sent("a2a", AgentToAgent),
    _sent("connect:status", ConnectStatus),
    _sent("error", SocketError),
    MessageKind("Joined", "send", RoomChange, "A room was joined.", "joined"),
    MessageKind("Left", "send", RoomChange, "A room was left.", "left"),
    MessageKind("Pong", "send", Time, "Answer a ping.", "pong"),
)
