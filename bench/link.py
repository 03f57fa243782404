"""A plain blocking connection to a bus: it joins, subscribes, and is then handed to the load."""

from __future__ import annotations

import socket
from typing import Any

import msgspec

from bench.framing import Framing, Lines, TextFrames
from bench.job import LoadError

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
SUBSCRIBE_BATCH = 200
TIMEOUT_SECONDS = 30.0


class Answer(msgspec.Struct):
    """What a bus answers to a call of ours."""

    id: int | None = None
    result: dict[str, Any] | None = None  # any JSON: only its presence matters here
    error: dict[str, Any] | None = None


class Link:
    """One connection that has joined the bus as `client_id`."""

    def __init__(self, address: str, client_id: str) -> None:
        self.socket = open_socket(address)
        self.framing: Framing = Lines()
        if address.startswith("ws://"):
            self.upgrade()
        self.call("initialize", [{"clientId": client_id}])

    def upgrade(self) -> None:
        """Turn the connection into a WebSocket."""
        self.socket.sendall(UPGRADE)
        reply = b""
        while b"\r\n\r\n" not in reply:
            reply += self.receive()
        head, _, rest = reply.partition(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n")[0] or rest:
            raise LoadError(f"no WebSocket: {reply[:80]!r}")
        self.framing = TextFrames()

    def subscribe(self, *patterns: str) -> None:
        """Subscribe to all these patterns."""
        for start in range(0, len(patterns), SUBSCRIBE_BATCH):
            batch = patterns[start : start + SUBSCRIBE_BATCH]
            self.call("subscribe", [{"address": pattern} for pattern in batch])

    def call(self, method: str, many_params: list[dict[str, str]]) -> None:
        """Call one method with each of these params, in one write, and wait for all answers."""
        requests = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            for number, params in enumerate(many_params)
        ]
        encode, wrap = msgspec.json.encode, self.framing.wrap
        self.socket.sendall(b"".join(wrap(encode(request)) for request in requests))
        missing = len(requests)
        while missing:
            for frame in self.framing.feed(self.receive()):
                answer = msgspec.json.decode(frame, type=Answer)
                if answer.result is None:
                    raise LoadError(f"{method} failed: {answer.error}")
                missing -= 1

    def receive(self) -> bytes:
        """The next bytes from the bus."""
        chunk = self.socket.recv(65536)
        if not chunk:
            raise LoadError("the server closed the connection")
        return chunk

    def close(self) -> None:
        """Leave."""
        self.socket.close()


def open_socket(address: str) -> socket.socket:
    """Connect to `unix:PATH`, `tcp://HOST:PORT`, `ws://HOST:PORT` or `nats://HOST:PORT`."""
    if address.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(TIMEOUT_SECONDS)
        connection.connect(address.removeprefix("unix:"))
        return connection
    host, _, port = address.partition("://")[2].strip("/").rpartition(":")
    connection = socket.create_connection((host, int(port)), TIMEOUT_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
