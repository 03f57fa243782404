"""What the bus ought to do, said again in the plainest way; shares nothing with the bus."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

Ack = dict[str, Any]


def matches(pattern: str, address: str) -> bool:
    """True if the glob matches as the reference's bus has it: Python's own fnmatch says so.

    Ours knows one thing more: a pattern matches the address that it spells, brackets included.
    """
    return address == pattern or fnmatchcase(address, pattern)


@dataclass
class Reply:
    """One way to answer a message, and the ack that the sender must see for it."""

    member: str  # the result or the error, as the rest of the reply
    ack: Ack = field(default_factory=dict)


def ack_of(success: bool = True, message: str = "", payload: object = None) -> Ack:
    return {"success": success, "message": message, "payload": {} if payload is None else payload}


BUSY = ack_of(False, "peer is busy") | {
    "shouldRetry": True,
    "retrySeconds": 1,
    "outcome": "busy",
}
LEFT = ack_of(False, "peer left before it answered") | {"outcome": "lost"}
LATE = ack_of(False, "no answer in time") | {"outcome": "timeout"}
LEFT_OUT = "payload left out: the acks together are too large"

MALFORMED = ack_of(False, "malformed answer: not the result of a processMessage") | {
    "outcome": "malformed"
}


def left_out(ack: Ack) -> Ack:
    """Return what is left of an ack whose payload has no room."""
    said = ack["message"]
    return ack | {"payload": {}, "message": f"{said} ({LEFT_OUT})" if said else LEFT_OUT}


def replies(token: str, padding: str) -> list[Reply]:
    """Every way of answering; `token` makes this answer unlike all others."""
    payload = {"by": token}
    big = {"by": token, "padding": padding}
    why = f"no: {token}"
    error = {"code": 7, "message": why, "data": {"by": token}}
    bad_error = {"code": -32603, "message": "malformed error"}
    return [
        _result({"success": True, "message": token, "payload": payload}, message=token),
        _result({"payload": payload}),
        _result({"payload": big}),
        _result({"payload": big, "message": None, "success": None}),
        Reply(
            f'"result":{json.dumps({"success": False, "shouldRetry": True, "retrySeconds": 3})}',
            ack_of(False) | {"shouldRetry": True, "retrySeconds": 3},
        ),
        Reply('"result":{"success":false,"outcome":"busy"}', ack_of(False)),
        Reply('"result":{}', ack_of()),
        Reply('"result":null', ack_of()),
        Reply('"result":17', MALFORMED),
        Reply('"result":[1]', MALFORMED),
        Reply('"result":{"success":"yes"}', MALFORMED),
        Reply(f'"error":{json.dumps(error)}', ack_of(False, why, {"error": error})),
        Reply('"error":"oops"', ack_of(False, "malformed error", {"error": bad_error})),
    ]


def _result(result: dict[str, Any], message: str = "") -> Reply:
    return Reply(f'"result":{json.dumps(result)}', ack_of(True, message, result["payload"]))
