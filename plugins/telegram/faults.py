"""Faults: why Telegram did not do what it was asked for, and what that means for a post.

| kind | what has happened | a post |
| --- | --- | --- |
| `unreachable` | no connection was made | is tried again |
| `unknown` | a time-out, half a response, an error of the server (5xx) | is repeated |
| `slow_down` | too many requests (429) | waits as long as Telegram asks |
| `unauthorized` | the token is wrong or revoked (401, 404) | is tried again, slowly |
| `conflict` | another program polls with the token (409) | is tried again, slowly |
| `migrated` | the group has become a supergroup | goes to the new chat |
| `forbidden` | the bot was blocked or removed (403) | is refused permanently |
| `bad_request` | Telegram does not accept it (400, 413) | is refused permanently |
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from busd import Refuse
from busd.bridge import MaybePosted, SlowDown

Kind = Literal[
    "unreachable",
    "unknown",
    "slow_down",
    "unauthorized",
    "conflict",
    "migrated",
    "forbidden",
    "bad_request",
]
_KINDS: dict[int, Kind] = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "unauthorized",  # Telegram's answer to a token that never existed
    409: "conflict",
    413: "bad_request",
    429: "slow_down",
}
_SLOW_DOWN_SECONDS = 5.0  # if Telegram does not say how long
_UNREACHABLE_SECONDS = 2.0
_UNAUTHORIZED_SECONDS = 60.0
_MAX_DESCRIPTION = 300


class Parameters(msgspec.Struct):
    """What Telegram adds to some errors."""

    retry_after: float | None = None
    migrate_to_chat_id: int | None = None


class Response(msgspec.Struct):
    """The answer to any request."""

    ok: bool
    result: Any = None  # Any: each method has a result of its own
    error_code: int = 0
    description: str = ""
    parameters: Parameters | None = None


class Fault(Exception):
    """A request to Telegram has failed; never contains the token."""

    def __init__(
        self, kind: Kind, description: str, *, seconds: float = 0.0, new_chat_id: int = 0
    ) -> None:
        super().__init__(description[:_MAX_DESCRIPTION])
        self.kind = kind
        self.description = description[:_MAX_DESCRIPTION]
        self.seconds = seconds
        self.new_chat_id = new_chat_id

    def says(self, *words: str) -> bool:
        """Return whether Telegram refuses a request with one of these phrases."""
        said = self.description.lower()
        return self.kind == "bad_request" and any(each in said for each in words)


def fault_of(status: int, response: Response | None) -> Fault:
    """Return the fault that a response reports; one that is no JSON is None."""
    if response is None:
        if status >= 400:
            return Fault(_KINDS.get(status, "unknown"), f"HTTP status {status}")
        return Fault("unknown", "the response is not complete")
    code = response.error_code or status
    extra = response.parameters or Parameters()
    said = response.description or f"HTTP status {code}"
    if extra.migrate_to_chat_id:
        return Fault("migrated", said, new_chat_id=extra.migrate_to_chat_id)
    if extra.retry_after is not None:
        return Fault("slow_down", said, seconds=max(extra.retry_after, 0.0))
    kind = _KINDS.get(code, "unknown" if code >= 500 else "bad_request")
    return Fault(kind, said, seconds=_SLOW_DOWN_SECONDS if kind == "slow_down" else 0.0)


def refusal_of(fault: Fault, *, is_group: bool) -> Refuse:
    """Return what the kit is to do with a post that has failed."""
    match fault.kind:
        case "unreachable":
            return Refuse(fault.description, retry_seconds=_UNREACHABLE_SECONDS)
        case "unknown":
            return MaybePosted(fault.description, retry_seconds=_UNREACHABLE_SECONDS)
        case "slow_down":
            # Telegram does not say whether one chat is meant: groups have a limit of their own.
            return SlowDown(fault.seconds, everywhere=not is_group)
        case "unauthorized" | "conflict":
            return Refuse(fault.description, retry_seconds=_UNAUTHORIZED_SECONDS)
        case _:
            return Refuse(fault.description)
