"""Values that clients send: objects, ids, times and JSON, checked one by one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw

from busd.gateway import parse_lenient
from busd_plugins.tkr.adapters import Message

MAX_ID_CHARACTERS = 256
SHOWN_CHARACTERS = 80  # of a wrong value in an error
_MAX_INTEGER = 2**63
_MILLISECONDS_FROM = 100_000_000_000  # smaller numbers count seconds: this one is in 1973, or 5138


class BadMessage(ValueError):
    """Raised for a message that cannot be understood; names the member at fault."""

    def __init__(self, member: str, problem: str) -> None:
        super().__init__(f"{member}: {problem}")
        self.member = member
        self.problem = problem


def object_of(data: Any) -> Message:
    """Return the object that an event carries; it may be written as JSON text.

    Raise BadMessage if it is none, or has what JSON in UTF-8 cannot express.
    """
    if isinstance(data, str):
        try:
            data = parse_lenient(data)
        except ValueError as problem:
            raise BadMessage("data", f"must be an object: {problem}") from None
    if not isinstance(data, dict):
        raise BadMessage("data", f"must be an object, not {said(data)}")
    try:
        raw_of(data)
    except BadMessage:
        for member, value in data.items():
            raw_of(value, str(member))
        raise  # the name of a member is at fault
    return data


def id_of(value: Any, member: str) -> str:
    """Return an id that an event carries, "" if there is none; raise BadMessage."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BadMessage(member, f"must be a string, not {said(value)}")
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        raise BadMessage(member, "a number that is too large")
    return checked(str(value), member)


def agent_name(name: str) -> str:
    """Return an agent's name without the prefix that it has on the bus."""
    return name.removeprefix("agent:")


def utc(timestamp: str | int | float) -> str:
    """Return a time in UTC; a number counts (milli)seconds. Raise BadMessage."""
    try:
        if isinstance(timestamp, str):
            when = datetime.fromisoformat(timestamp)
            if timestamp.endswith("Z"):
                return timestamp
            when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
        else:
            is_seconds = abs(timestamp) < _MILLISECONDS_FROM
            when = datetime.fromtimestamp(timestamp if is_seconds else timestamp / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        problem = f"must be a time such as 2026-01-31T12:00:00.000Z, not {said(timestamp)}"
        raise BadMessage("timestamp", problem) from None
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def raw_of(value: Any, member: str = "data") -> Raw:
    """Return a value as JSON; raise BadMessage if that cannot express it."""
    try:
        return Raw(msgspec.json.encode(value))
    except (ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as problem:
        problems = {
            RecursionError: "nested too deeply",
            UnicodeEncodeError: "half a surrogate pair, which UTF-8 cannot express",
            OverflowError: "a number that is too large",
        }
        raise BadMessage(member, problems.get(type(problem), str(problem))) from None


def json_of(value: Any) -> str:
    """Return a value as JSON text, "" if there is none."""
    return "" if value is None else bytes(raw_of(value)).decode()


def checked(value: str, member: str) -> str:
    """Return an id that is not too long; raise BadMessage."""
    if len(value) > MAX_ID_CHARACTERS:
        raise BadMessage(member, f"longer than {MAX_ID_CHARACTERS} characters")
    return value


def said(value: Any) -> str:
    """Return a wrong value as an error shows it."""
    if isinstance(value, dict | list):
        return "an array" if isinstance(value, list) else "an object"
    try:
        return msgspec.json.encode(value).decode()[:SHOWN_CHARACTERS]
    except (ValueError, OverflowError, msgspec.MsgspecError):
        return type(value).__name__
