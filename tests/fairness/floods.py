"""Floods: what one peer sends to keep the bus busy. Each is a bounded count of bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.wire_peers import PING, PONG, TEXT, Transport, encode_frame

_HALF_MIB = 512 * 1024


@dataclass(frozen=True)
class Flood:
    """One kind of flood; `data` is sent again and again until `total_bytes` are sent."""

    name: str
    data: bytes = field(repr=False)
    total_bytes: int = 16 * 1024 * 1024
    transport: Transport = "tcp"
    initializes: bool = True
    reads: bool = True  # what the bus answers


def request(method: str, params: object, **members: object) -> bytes:
    """Return a request, or a notification if it has no id."""
    envelope = {"jsonrpc": "2.0", "method": method, "params": params, **members}
    return json.dumps(envelope, separators=(",", ":")).encode()


def _message(to: str, **members: object) -> bytes:
    return request("sendMessage", {"to": to, "payload": {}}, **members)


def _durable(to: str, **members: object) -> bytes:
    params = {"to": to, "delivery": {"durable": True}, "payload": {}}
    return request("sendMessage", params, **members)


def _durable_to_many() -> bytes:
    """Return messages to 5,000 addresses: as many mailboxes."""
    return b"".join(_durable(f"absent:{number}", id=1) + b"\n" for number in range(5_000))


def _lines(frame: bytes) -> bytes:
    """Return about half a MiB of this line."""
    return (frame + b"\n") * (_HALF_MIB // (len(frame) + 1) + 1)


def _frames(frame: bytes) -> bytes:
    return frame * (_HALF_MIB // len(frame) + 1)


def _batch(element: bytes, count: int = 1_000) -> bytes:
    return b"[" + b",".join([element] * count) + b"]\n"


def _globs(make: Callable[[int], bytes]) -> bytes:
    """Return a batch that subscribes to a thousand patterns."""
    return b"[" + b",".join(make(number) for number in range(1_000)) + b"]\n"


def _subscribe(number: int) -> bytes:
    return request("subscribe", {"address": f"*a{number}*b*"}, id=number)


def _unsubscribe(number: int) -> bytes:
    return request("unsubscribe", {"address": f"*a{number}*b*"}, id=number)


MIB = 1024 * 1024
FLOODS = [
    Flood("empty lines before initialize", _lines(b""), initializes=False),
    Flood("lines of white space", _lines(b"\r")),
    Flood("lines that are not JSON", _lines(b"x"), 2 * MIB),
    Flood("half a million tiny frames", _lines(b"1"), 2 * MIB),
    Flood("messages to nobody", _lines(_message("nobody", id=1)), 8 * MIB),
    Flood("notifications to nobody", _lines(_message("nobody")), 8 * MIB),
    Flood("notifications to itself", _lines(_message("flooder")), 8 * MIB, reads=False),
    Flood("durable messages to nobody", _lines(_durable("absent", id=1)), 4 * MIB),
    Flood("durable notifications", _lines(_durable("absent:n")), 4 * MIB),
    Flood("durable messages to 5,000 absent", _durable_to_many(), 4 * MIB),
    Flood("durable messages to itself", _lines(_durable("flooder", id=1)), 4 * MIB),
    Flood("replies nobody asked for", _lines(b'{"jsonrpc":"2.0","id":1,"result":{}}'), 8 * MIB),
    Flood("errors nobody asked for", _lines(b'{"jsonrpc":"2.0","id":1,"error":{}}'), 4 * MIB),
    Flood("pings of JSON-RPC", _lines(request("ping", {}, id=1)), 2 * MIB),
    Flood("requests before initialize", _lines(request("ping", {}, id=1)), MIB, initializes=False),
    Flood("rpc.discover, 10,000 times", (request("rpc.discover", {}) + b"\n") * 10_000, 1),
    Flood("getStatus, answers not read", _lines(request("getStatus", {}, id=1)), MIB, reads=False),
    Flood("batches of messages to nobody", _batch(_message("nobody", id=1)), 4 * MIB),
    Flood("batches of pings", _batch(request("ping", {}, id=1)), 2 * MIB),
    Flood("batches of globs", _globs(_subscribe) + _globs(_unsubscribe), MIB),
    Flood("arrays of half a million", b"[" + b"1," * 500_000 + b"1]\n", 16 * MIB),
    Flood("messages of a MiB to itself", _lines(_message("flooder")[:-2] + b" " * MIB + b"}}"), 1),
    Flood("empty WebSocket pings", _frames(encode_frame(PING, b"")), 4 * MIB, "ws"),
    Flood("empty pongs before initialize", _frames(encode_frame(PONG, b"")), 4 * MIB, "ws", False),
    Flood(
        "empty fragments",
        encode_frame(TEXT, b"", fin=False) + _frames(encode_frame(0, b"", fin=False)),
        1,
        "ws",
    ),
    Flood("empty text frames", _frames(encode_frame(TEXT, b"")), 4 * MIB, "ws"),
]
