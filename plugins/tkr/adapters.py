"""The two spellings of a message: standard (`session_id`) and legacy (`sessionId`).

These functions lose no member: what neither spelling knows is passed on as it is.
"""

from __future__ import annotations

import random
import time
from typing import Any

from busd import now

Message = dict[str, Any]

LEGACY_NAMES = {
    "session_id": "sessionId",
    "from_agent": "fromAgent",
    "to_agent": "toAgent",
    "from_user": "fromUser",
    "in_reply_to": "inReplyTo",
    "turn_complete": "turnComplete",
    "context_id": "contextId",
    "context_data": "contextData",
    "target_agents": "targetAgents",
    "task_id": "taskId",
    "error_code": "errorCode",
    "error_details": "errorDetails",
}
STANDARD_NAMES = {legacy: standard for standard, legacy in LEGACY_NAMES.items()}
DEFAULT_SESSION = "default"
DEFAULT_TYPE = "text"
_ABSENT = (None, "")


def is_legacy_format(message: Message) -> bool:
    """Return whether a message has what tells the legacy spelling: `sessionId` and `id`."""
    return "sessionId" in message and "id" in message


def is_standard_format(message: Message) -> bool:
    """Return whether a message has what tells the standard spelling: `session_id` and `id`."""
    return "session_id" in message and "id" in message


def normalize_message(message: Message) -> Message:
    """Return a message of either spelling, of both or of neither in the standard spelling.

    Raise TypeError if it is no object, ValueError if it is empty.
    """
    if message is None:
        raise ValueError("there is no message")
    if not isinstance(message, dict):
        raise TypeError(f"a message is an object, not {type(message).__name__}")
    if not message:
        raise ValueError("the message is empty")
    if "sessionId" in message:  # legacy, with or without an id, or both
        return legacy_to_standard(message)
    if is_standard_format(message):
        return message
    normal = _in_standard_spelling(message)
    if normal.get("content") is None:
        normal["content"] = ""
    return normal


def legacy_to_standard(message: Message) -> Message:
    """Return a message of the legacy spelling, or of both, in the standard spelling.

    `content` has precedence over `text`; a message without a sender is a user's.
    """
    standard = _in_standard_spelling(message)
    if not standard.get("from_agent") and standard.get("from_user") is None:
        standard["from_user"] = True
    return standard


def standard_to_legacy(message: Message) -> Message:
    """Return a message of the standard spelling in the legacy spelling.

    It has the content as `content` and, if that is a string, as `text`, too.
    """
    legacy = _with_members_first("sessionId", message, LEGACY_NAMES)
    for name, legacy_name in LEGACY_NAMES.items():
        _take_over(message, name, legacy, legacy_name)
    _complete(legacy, "sessionId")
    if isinstance(legacy.get("content"), str):
        legacy.setdefault("text", legacy["content"])
    return legacy


def new_message_id() -> str:
    """Return an id as clients make them: the time in milliseconds and a number."""
    return f"msg_{time.time_ns() // 1_000_000}_{random.randrange(1000)}"  # noqa: S311 - no secret


def _in_standard_spelling(message: Message) -> Message:
    standard = _with_members_first("session_id", message, STANDARD_NAMES)
    for legacy_name, name in STANDARD_NAMES.items():
        _take_over(message, legacy_name, standard, name)
    _complete(standard, "session_id")
    text = standard.get("text")
    if standard.get("content") is None and text is not None:
        standard["content"] = text
    if "text" in standard and standard.get("content") == text:
        del standard["text"]
    return standard


def _with_members_first(session_name: str, message: Message, others: dict[str, str]) -> Message:
    """Return what is spelled the same in both, behind what every message has."""
    members = dict.fromkeys(("id", "type", "timestamp", session_name))
    return members | {name: value for name, value in message.items() if name not in others}


def _take_over(message: Message, name: str, target: Message, target_name: str) -> None:
    """Set a member in the other spelling; a value of that spelling only gives way to a value."""
    if name in message and (message[name] not in _ABSENT or target.get(target_name) in _ABSENT):
        target[target_name] = message[name]


def _complete(message: Message, session_name: str) -> None:
    """Set what every message has and this one lacks."""
    if message["id"] in _ABSENT:
        message["id"] = new_message_id()
    if message["type"] in _ABSENT:
        message["type"] = DEFAULT_TYPE
    if message["timestamp"] in _ABSENT:
        message["timestamp"] = now()
    if message[session_name] in _ABSENT:
        message[session_name] = DEFAULT_SESSION
