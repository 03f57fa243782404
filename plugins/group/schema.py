"""Every kind of message of this dialect, for its AsyncAPI document."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, defstruct

from busd.gateway import MessageKind
from busd_plugins.group.messages import CONTROL, TYPES
from busd_plugins.group.payload_schema import PAYLOADS, Person

NEVER_SENT = {"connect", "disconnect", "ping", "join", "leave"}


class Sender(Struct, kw_only=True):
    """Who sends a message."""

    id: str | int
    type: Literal["user", "agent", "system"] | UnsetType | None = UNSET
    name: str | UnsetType | None = UNSET


class ErrorCode(Struct):
    """A fault."""

    code: str
    message: str


class Sent(Struct, kw_only=True):
    """What all messages share that the gateway sends."""

    message_id: str
    sender: Person
    timestamp: str  # RFC 3339, UTC, ending in Z
    metadata: dict[str, Any]
    error: ErrorCode | UnsetType = UNSET  # of `error`


class Received(Struct, kw_only=True):
    """What all messages share that a client sends."""

    message_id: str | int | UnsetType | None = UNSET
    timestamp: str | float | UnsetType | None = UNSET
    metadata: dict[str, Any] | UnsetType | None = UNSET


def _kind(name: str, direction: Literal["receive", "send"]) -> MessageKind:
    """Return the description of a type of messages."""
    payload = PAYLOADS[name]
    title = "".join(part.capitalize() for part in name.split("_"))
    fields: list[Any] = [("message_type", Literal[name])]
    if direction == "send":
        struct = defstruct(
            f"{title}Sent",
            [*fields, ("payload", payload)],
            bases=(Sent,),
            namespace={"__doc__": payload.__doc__},
            kw_only=True,
        )
    else:
        needed = name not in CONTROL
        members = [("payload", payload), ("sender", Sender)]
        fields += [each if needed else (*_optional(each),) for each in members]
        struct = defstruct(
            f"{title}Message",
            fields,
            bases=(Received,),
            namespace={"__doc__": payload.__doc__},
            kw_only=True,
        )
    return MessageKind(name, direction, struct)


def _optional(member: tuple[str, Any]) -> tuple[str, Any, Any]:
    name, kind = member
    return name, kind | UnsetType | None, UNSET


MESSAGES = (
    *(_kind(name, "receive") for name in TYPES),
    *(_kind(name, "send") for name in TYPES if name not in NEVER_SENT),
)
