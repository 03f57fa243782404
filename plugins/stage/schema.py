"""Every kind of message of this dialect, for its AsyncAPI document."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from busd.gateway import MessageKind

Success = Literal["success"]


class TextObject(Struct, kw_only=True):
    """A text in an object, for clients that send JSON: one of the members has it."""

    text: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    message: str | UnsetType = UNSET


class Placed(Struct, kw_only=True, forbid_unknown_fields=True):
    """What all frames share beside what they say."""

    message_id: str
    conversation_id: str
    session_id: str  # by which the session is resumed
    sequence: int  # of the connection
    timestamp: str
    parent_id: str | UnsetType = UNSET  # the message that is answered


class SessionInfo(Struct, kw_only=True, forbid_unknown_fields=True):
    """What is known of a session."""

    is_existing_session: bool


class Welcome(Placed, kw_only=True):
    """Greet a client; the first frame."""

    status: Success
    type: Literal["welcome"]
    message: str
    session_info: SessionInfo


class Goodbye(Placed, kw_only=True):
    """End the session; the last frame."""

    status: Success
    type: Literal["goodbye"]
    message: str


class ExceptionFrame(Placed, kw_only=True):
    """Report what is wrong with a message, or why a turn has failed."""

    status: Literal["error"]
    type: Literal["exception"]
    message: str
    error: str  # the same
    code: str | UnsetType = UNSET
    details: Any = None


class Cancelled(Placed, kw_only=True):
    """Report that an answer was stopped."""

    status: Literal["warning"]
    type: Literal["cancelled"]
    message: str


class Speaker(Struct, kw_only=True, forbid_unknown_fields=True):
    """Who said something."""

    id: str
    type: Literal["user", "agent", "system"]
    name: str


class Words(Placed, kw_only=True):
    """Show what somebody else says in the conversation: the name, and the words."""

    status: Success
    type: Literal["message"]
    message: str
    role: Literal["user", "assistant", "system"]
    author: Speaker


class PromptOption(Struct, kw_only=True, forbid_unknown_fields=True):
    """One of the answers that a question offers."""

    id: str
    label: str
    value: str
    description: str | UnsetType = UNSET


class Question(Placed, kw_only=True):
    """Ask the user: the next text is the answer. A notification needs none."""

    status: Success
    type: Literal["prompt", "notification"]
    message: str  # with the options, numbered
    prompt_id: str
    input_type: Literal["text", "binary_choice", "radio", "checkbox", "dropdown", "notification"]
    options: list[PromptOption] | UnsetType = UNSET
    timeout: int | UnsetType = UNSET  # seconds that are left


class Response(Placed, kw_only=True):
    """The first words of an answer, once in every turn, and the last ones if tools were used."""

    status: Success
    stage: Literal["initial_response", "final_response"]
    content: str


class ToolCall(Placed, kw_only=True):
    """Show that a tool is begun, to clients with `?tool_calls=1`."""

    status: Success
    stage: Literal["tool_call"]
    tool: str
    arguments: Any
    content: str
    tool_call_id: str


class ToolResult(Placed, kw_only=True):
    """Show the result of a tool."""

    status: Success
    stage: Literal["tool_result"]
    tool: str
    response: str
    tool_call_id: str
    arguments: Any = None


class ToolError(Placed, kw_only=True):
    """Show why a tool has no result."""

    status: Literal["error"]
    stage: Literal["tool_exec", "tool_args", "tool_missing"]
    tool: str
    error: str
    tool_call_id: str
    arguments: Any = None


SENT: tuple[type[Struct], ...] = (
    Welcome,
    Goodbye,
    ExceptionFrame,
    Cancelled,
    Words,
    Question,
    Response,
    ToolCall,
    ToolResult,
    ToolError,
)
MESSAGES = (
    MessageKind("Text", "receive", str, "A message as plain text; `exit` ends the session."),
    MessageKind("TextObject", "receive", TextObject),
    *(MessageKind(struct.__name__, "send", struct) for struct in SENT),
)
