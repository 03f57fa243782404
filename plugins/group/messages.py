"""Messages of clients: read, checked and completed."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import msgspec

from busd.gateway import Author, AuthorType, Frame, parse_lenient
from busd_plugins.group.errors import NO_JSON, Invalid
from busd_plugins.group.people import SYSTEM

# What JSON can express; `Any`, because a member may be whatever a client likes.
Json = dict[str, Any]
Type = Literal[
    "connect", "connect_ack", "disconnect", "ping", "pong",
    "chat", "system", "agent_response", "join", "leave", "typing", "read_receipt",
    "image", "file", "voice", "rich_text", "markdown",
    "task", "task_update", "poll", "decision", "handoff",
    "error", "status", "settings",
]  # fmt: skip
TYPES: tuple[Type, ...] = get_args(Type)
# Those that control the connection: they need no sender, and are never kept.
CONTROL = {"connect", "connect_ack", "disconnect", "ping", "pong"}
SECRET = "auth_token"  # noqa: S105 (the name of a member)
MAX_DEPTH = 64
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
_MILLISECONDS = 100_000_000_000  # a number beyond that counts milliseconds, not seconds


class Message(msgspec.Struct, kw_only=True):
    """One message. `frame` is all of it, with checked members and without secrets."""

    type: Type
    id: str  # "" if the client gave none
    sender: Author  # id "" for a message that controls the connection
    timestamp: str  # "" if the client gave none
    frame: Json
    token: str = ""  # of `connect`

    @property
    def payload(self) -> Json:
        """The payload, a part of the frame."""
        payload: Json = self.frame["payload"]
        return payload


def read_message(frame: Frame) -> Message:
    """Return the message in a frame; raise Invalid."""
    if not isinstance(frame, str):
        raise Invalid("frame", "必须是文本", NO_JSON)
    try:
        value = parse_lenient(frame)
    except ValueError as problem:
        raise Invalid("frame", str(problem), NO_JSON) from None
    if not isinstance(value, dict):
        raise Invalid("message", "必须是JSON对象")
    message_id = _id_of(value)
    try:
        return _checked(value, message_id)
    except Invalid as problem:
        problem.message_id = message_id
        raise


def _checked(value: Json, message_id: str) -> Message:
    kind: Type = _type_of(value)
    token = value["payload"].get(SECRET) if isinstance(value.get("payload"), dict) else None
    kept: Json = without_secrets(value)
    kept["message_type"] = kind
    _set_or_drop(kept, "message_id", message_id)
    sender = _sender_of(kept, kind)
    timestamp = read_timestamp(kept.get("timestamp"))
    _set_or_drop(kept, "timestamp", timestamp)
    for name in ("payload", "metadata"):
        member = kept.get(name)
        is_needed = name == "payload" and kind not in CONTROL
        if member is None and not is_needed:
            kept[name] = {}
        elif not isinstance(member, dict):
            raise Invalid(name, "必须是对象")
    return Message(
        type=kind,
        id=message_id,
        sender=sender,
        timestamp=timestamp,
        frame=kept,
        token=token.strip() if isinstance(token, str) else "",
    )


def _set_or_drop(frame: Json, name: str, value: str) -> None:
    frame.pop(name, None)
    if value:
        frame[name] = value


def _type_of(frame: Json) -> Type:
    given = frame.get("message_type")
    if given is None:
        raise Invalid("message_type", "缺失")
    for kind in TYPES:
        if kind == given:
            return kind
    raise Invalid("message_type", f"必须是{len(TYPES)}种消息类型之一，例如 chat")


def _id_of(frame: Json) -> str:
    return text_of(frame.get("message_id"), "message_id")


def text_of(value: object, field: str) -> str:
    """Return an id or a name as text; a number is one, too, and null is none."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise Invalid(field, "必须是字符串")


def _sender_of(frame: Json, kind: Type) -> Author:
    given = frame.get("sender")
    if given is None and kind in CONTROL:
        frame.pop("sender", None)
        return Author("")
    if given is None and kind == "system":
        given = {}
    if not isinstance(given, dict):
        raise Invalid("sender", "缺失" if given is None else "必须是对象")
    if kind == "system":
        author = SYSTEM
    else:
        author = author_of(given, "sender", "agent" if kind == "agent_response" else "user")
    if kind == "agent_response" and author.type != "agent":
        raise Invalid("sender.type", "必须是 agent")
    frame["sender"] = {**given, "id": author.id, "type": author.type, "name": author.name}
    return author


def author_of(given: Json, field: str, default: AuthorType = "user") -> Author:
    """Return the user or agent that an object describes; raise Invalid."""
    name = text_of(given.get("name"), f"{field}.name")
    author_id = text_of(given.get("id"), f"{field}.id")
    kind = given.get("type")
    if kind is None:
        kind = default
    if kind not in ("user", "agent", "system"):
        raise Invalid(f"{field}.type", "必须是 user、agent 或 system")
    if kind == "agent":
        author_id = author_id.removeprefix("agent:")
    if not author_id:
        raise Invalid(f"{field}.id", "缺失")
    return Author(author_id, kind, name or author_id)


def read_timestamp(given: object) -> str:
    """Return a time as RFC 3339 in UTC, ending in Z; without a zone it is taken as UTC."""
    if given is None or given == "":
        return ""
    try:
        if isinstance(given, str):
            time = datetime.fromisoformat(given.strip())
            if _RFC_3339.fullmatch(given):
                return given
            time = time.replace(tzinfo=time.tzinfo or UTC).astimezone(UTC)
        elif isinstance(given, int | float) and not isinstance(given, bool):
            seconds = given / 1000 if abs(given) > _MILLISECONDS else given
            time = datetime.fromtimestamp(seconds, UTC)
        else:
            raise ValueError
    except (ValueError, OverflowError, OSError):
        raise Invalid("timestamp", "必须是ISO 8601格式的时间") from None
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def number_of(value: object, field: str, most: float) -> float:
    """Return a number from 0 to `most`; raise Invalid."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, int | float) and is_number and math.isfinite(value) and 0 <= value <= most:
        return value
    raise Invalid(field, f"必须是0到{most:g}之间的数字")


def without_secrets(value: Any, depth: int = 0) -> Any:
    """Return a copy of a JSON value without tokens; raise Invalid if it is nested too deeply."""
    if depth > MAX_DEPTH:
        raise Invalid("message", f"嵌套超过{MAX_DEPTH}层")
    if isinstance(value, dict):
        return {k: without_secrets(v, depth + 1) for k, v in value.items() if k != SECRET}
    if isinstance(value, list):
        return [without_secrets(item, depth + 1) for item in value]
    return value
