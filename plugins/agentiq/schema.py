"""Every kind of message of this dialect, for its AsyncAPI document."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from busd.gateway import MessageKind

Status = Literal["in_progress", "complete"]
Code = Literal[
    "unknown_error",
    "invalid_message",
    "invalid_message_type",
    "invalid_user_message_content",
    "invalid_data_content",
    "workflow_error",
    "user_auth_error",
]

# What clients send: a member that may be missing may also be null.


class Part(Struct, kw_only=True):
    """A part of a message's content: a text, picture, sound or file."""

    type: str | None = None  # "text", "image_url", "input_audio", "file" …
    text: str | None = None
    image_url: str | dict[str, Any] | None = None  # with `url`: a link, data URL or base64
    input_audio: dict[str, Any] | None = None  # with `data` and `format`
    video_url: str | dict[str, Any] | None = None
    file: dict[str, Any] | None = None  # with `filename` and `file_data` or `file_id`


class ChatMessage(Struct, kw_only=True):
    """A message of the history; the last one of the role `user` counts."""

    role: str = "user"
    content: str | list[str | Part]


class Content(Struct, kw_only=True):
    """The history that ends with what the user says now."""

    messages: list[ChatMessage]


class User(Struct, kw_only=True):
    """Who writes, for display."""

    name: str | None = None
    email: str | None = None


class Security(Struct, kw_only=True):
    """A credential; it is never kept."""

    token: str | None = None
    api_key: str | None = None


class FromUser(Struct, kw_only=True):
    """What the messages of a user share."""

    content: str | list[str | Part] | Content
    id: str | int | None = None
    thread_id: str | int | None = None
    conversation_id: str | int | None = None
    timestamp: str | None = None
    user: str | User | None = None
    security: Security | None = None
    schema_version: str | None = None


class UserMessage(FromUser, kw_only=True):
    """Begin a turn, in place of one that runs."""

    type: Literal["user_message"]
    schema_type: str | None = None  # generate, generate_stream, chat or chat_stream
    error: dict[str, Any] | None = None


class UserInteractionMessage(FromUser, kw_only=True):
    """Answer a prompt with the values of options, or with a text."""

    type: Literal["user_interaction_message"]
    parent_id: str | int | None = None  # of the prompt


class Credential(Struct, kw_only=True):
    """A token, or a password that is one."""

    method: Literal["jwt", "api_key", "basic", "oauth_mode_preference"] | None = None
    token: str | None = None
    username: str | None = None
    password: str | None = None
    mode: str | None = None  # of `oauth_mode_preference`, which is no credential and not answered


class AuthMessage(Struct, kw_only=True):
    """Prove who the client is."""

    type: Literal["auth_message"]
    payload: Credential
    timestamp: str | None = None


# What clients get.


class Placed(Struct, kw_only=True, forbid_unknown_fields=True):
    """What all messages about a conversation share."""

    id: str
    thread_id: str
    parent_id: str
    conversation_id: str
    status: Status
    timestamp: str


class ResponseText(Struct, kw_only=True, forbid_unknown_fields=True):
    """A piece of an answer; null at its end."""

    text: str | None


class Speaker(Struct, kw_only=True, forbid_unknown_fields=True):
    """Who said something, if it was not the agent that was asked."""

    id: str
    type: Literal["user", "agent", "system"]
    name: str


class SystemResponseMessage(Placed, kw_only=True):
    """A piece of an answer, or with status `complete` the end of it."""

    type: Literal["system_response_message"]
    content: ResponseText
    author: Speaker | UnsetType = UNSET


class StepContent(Struct, kw_only=True, forbid_unknown_fields=True):
    """The name and the text of a step."""

    name: str
    payload: str


class StepError(Struct, kw_only=True, forbid_unknown_fields=True):
    """Why a step has failed."""

    code: str


class SystemIntermediateMessage(Placed, kw_only=True):
    """A step of a turn, or something beside it; the same id and name replace it."""

    type: Literal["system_intermediate_message"]
    content: StepContent
    intermediate_parent_id: str
    user_message_id: str
    tool: str | UnsetType = UNSET
    arguments: Any = None
    intermediate_steps: list[Any] | UnsetType = UNSET  # frames of the steps within it
    error: StepError | UnsetType = UNSET


class PromptOption(Struct, kw_only=True, forbid_unknown_fields=True):
    """One of the answers that a prompt offers."""

    id: str
    label: str
    value: str
    description: str | UnsetType = UNSET


class PromptContent(Struct, kw_only=True, forbid_unknown_fields=True):
    """A question, or a notification, which needs no answer."""

    input_type: Literal["text", "binary_choice", "radio", "checkbox", "dropdown", "notification"]
    text: str
    placeholder: str | UnsetType = UNSET  # of a text
    options: list[PromptOption] | UnsetType = UNSET
    required: bool | UnsetType = UNSET
    timeout: int | UnsetType = UNSET  # seconds that are left
    error: str | UnsetType = UNSET  # what to show when they are over


class SystemInteractionMessage(Placed, kw_only=True):
    """Ask the user."""

    type: Literal["system_interaction_message"]
    content: PromptContent


class ErrorContent(Struct, kw_only=True, forbid_unknown_fields=True):
    """What is wrong: `details` names the member, if it is one."""

    code: Code
    message: str
    details: str


class ErrorMessage(Placed, kw_only=True):
    """Report what is wrong with a message, or why a turn has failed."""

    type: Literal["error_message"]
    content: ErrorContent


class AuthResponseMessage(Struct, kw_only=True, forbid_unknown_fields=True):
    """Answer an `auth_message`."""

    type: Literal["auth_response_message"]
    status: Literal["success", "error"]
    user_id: str | None
    payload: ErrorContent | None
    timestamp: str


RECEIVED: tuple[type[Struct], ...] = (UserMessage, UserInteractionMessage, AuthMessage)
SENT: tuple[type[Struct], ...] = (
    SystemResponseMessage,
    SystemIntermediateMessage,
    SystemInteractionMessage,
    ErrorMessage,
    AuthResponseMessage,
)
MESSAGES = (
    *(MessageKind(struct.__name__, "receive", struct) for struct in RECEIVED),
    *(MessageKind(struct.__name__, "send", struct) for struct in SENT),
)
