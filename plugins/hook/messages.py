"""What callers post, and what they get: the JSON of the webhook bridge."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, UnsetType

from busd.bridge import Attachment
from busd_plugins.hook.errors import HookError

State = Literal["waiting", "asking", "answered", "refused"]
_MAX_URL_CHARACTERS = 2_000
_DEFAULT_CHAT = "default"

ChatId = Annotated[str, Meta(min_length=1, max_length=180)]


class Posted(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A message for the agent of a chat."""

    text: str
    chat_id: ChatId = _DEFAULT_CHAT  # each chat has an agent of its own
    sender_id: Annotated[str, Meta(max_length=255)] = ""  # default: the name of the hook
    username: Annotated[str, Meta(max_length=255)] = ""
    full_name: Annotated[str, Meta(max_length=255)] = ""
    thread_id: Annotated[str, Meta(max_length=255)] = ""
    prompt_id: Annotated[str, Meta(max_length=255)] = ""  # of the question that it answers
    attachments: tuple[Attachment, ...] = ()
    metadata: dict[str, Any] = {}
    # Where the answer is posted to.
    callback_url: Annotated[str, Meta(max_length=_MAX_URL_CHARACTERS)] = ""


class Answer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A reply of an agent."""

    id: str  # the same for each delivery of it
    text: str
    sender: str  # the address of the agent
    prompt_id: str = ""  # it is a question: post the answer with this `prompt_id`
    thread_id: str = ""
    attachments: tuple[Attachment, ...] = ()
    metadata: Raw | UnsetType = msgspec.UNSET
    callback: str = ""  # `delivered`, or why not


class Outcome(msgspec.Struct, kw_only=True):
    """What has become of a message."""

    id: str
    state: State
    chat_id: str
    text: str = ""  # of the last reply
    replies: list[Answer] = []


class CallbackBody(msgspec.Struct, kw_only=True):
    """What is posted to a callback URL."""

    id: str  # of the message that it answers
    chat_id: str
    reply: Answer
    is_repeat: bool = False  # it may have been delivered before


def read_posted(content_type: str, body: bytes, chat_id: str) -> Posted:
    """Return a message; raise HookError. Anything but JSON is the text itself."""
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind == "application/json" or kind.endswith("+json"):
            return msgspec.json.decode(body, type=Posted)
        text = body.decode()
    except UnicodeDecodeError:
        raise HookError(400, "bad_request", "the body is not UTF-8") from None
    except (msgspec.DecodeError, RecursionError) as problem:
        words = f"the body is not a message: {problem or 'it is nested too deeply'}"
        raise HookError(400, "bad_request", words) from None
    try:
        return msgspec.convert({"text": text, "chat_id": chat_id or _DEFAULT_CHAT}, Posted)
    except msgspec.ValidationError as problem:
        raise HookError(400, "bad_request", f"in the query: {problem}") from None
