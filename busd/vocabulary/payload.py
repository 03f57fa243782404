"""Payloads: a message type is defined once, by its struct, which is used to read and write it.

    {"type": "hello", "from": "tg:1", "timestamp": "2026-02-17T12:00:00Z", "content": {…}}

The struct is the content. Members that stand beside `content` on the wire (`chat_id` of a
`tg_reply`) are named with `beside`; reading takes them from either place.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from busd.errors import Refuse
from busd.rpc.reading import Id, reader_of

T = TypeVar("T")
K = TypeVar("K", bound=type[msgspec.Struct])
_TYPE, _BESIDE = "__message_type__", "__message_beside__"


class Payload(msgspec.Struct, rename="camel"):
    """The envelope that all payloads share."""

    type: str = ""
    content: Raw = Raw(b"{}")
    sender: str | UnsetType = msgspec.field(name="from", default=UNSET)
    timestamp: str | UnsetType = UNSET
    message_id: Id | UnsetType = UNSET


decode_payload = reader_of(Payload).decode
decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


def message(type_name: str, *, beside: tuple[str, ...] = ()) -> Callable[[K], K]:
    """Declare a struct as the content of a type of message."""
    if not type_name:
        raise ValueError("a message type has a name")

    def named(kind: K) -> K:
        if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            raise TypeError(f"@message({type_name!r}) stands above a msgspec.Struct")
        setattr(kind, _TYPE, type_name)
        setattr(kind, _BESIDE, beside)
        return kind

    return named


def type_name_of(kind: type) -> str:
    """Return the name that `@message` gave a struct, or "" if it gave none."""
    return str(kind.__dict__.get(_TYPE, ""))


def type_of(raw: Raw) -> str:
    """Return the `type` of a payload, or "" if it has none that can be read."""
    try:
        return decode_payload(raw).type
    except (msgspec.MsgspecError, RecursionError):
        return ""


def author_of(sender: str, raw: Raw) -> str:
    """Return the author of a payload.

    A chat or an agent (`tg:1`, `agent:x`) sends for itself. A bridge, whose address has no
    prefix, sends for others: their address is the payload's `from`.
    """
    if ":" in sender:
        return sender
    try:
        return decode_payload(raw).sender or sender
    except (msgspec.MsgspecError, RecursionError):
        return sender


def read_message(raw: Raw, kind: type[T]) -> T:
    """Return the content of a payload; raise Refuse with the type and an invalid member."""
    name = type_name_of(kind)
    try:
        content: bytes | Raw = decode_payload(raw).content
        beside: tuple[str, ...] = getattr(kind, _BESIDE, ())
        if beside:
            whole = decode_members(raw)
            outside = {each: whole[each] for each in beside if each in whole}
            content = msgspec.json.encode(decode_members(content) | outside)
        return reader_of(kind).decode(content)
    except msgspec.ValidationError as problem:
        raise Refuse(f"{name}: {_in_content(str(problem))}") from None
    except (msgspec.DecodeError, RecursionError):
        raise Refuse(f"{name}: the payload cannot be read") from None


def write_message(
    value: msgspec.Struct, *, sender: str = "", timestamp: str = "", message_id: str = ""
) -> Raw:
    """Return the payload whose content is `value`."""
    name = type_name_of(type(value))
    if not name:
        raise TypeError(f"{type(value).__name__} has no @message type")
    content = decode_members(msgspec.json.encode(value))
    payload: dict[str, Any] = {"type": name}
    if sender:
        payload["from"] = sender
    payload["timestamp"] = timestamp or now()
    if message_id:
        payload["messageId"] = message_id
    beside: tuple[str, ...] = getattr(type(value), _BESIDE, ())
    payload |= {each: content.pop(each) for each in beside if each in content}
    payload["content"] = content
    return Raw(msgspec.json.encode(payload))


def now() -> str:
    """Return the current time in the format of payloads."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _in_content(problem: str) -> str:
    """Return the position in the payload of an error that msgspec found in the content."""
    said, at, where = problem.partition(" - at `$")
    return f"content{where.rstrip('`')}: {said}" if at else f"content: {problem}"
