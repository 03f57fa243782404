"""Decide by its first bytes whether a connection speaks lines or HTTP (and so WebSocket)."""

from __future__ import annotations

import msgspec
from websockets.http11 import Request

from busd.errors import ProtocolViolation
from busd.wire.connection import Connection
from busd.wire.doorman import Doorman, Page, token_of
from busd.wire.lines import LineFramer
from busd.wire.websocket import ServerFramer

_HTTP_METHODS = (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"OPTIONS ", b"DELETE ", b"PATCH ")


class Sniffer:
    """The framer of a connection that has not said enough yet; puts the right one in its place."""

    __slots__ = ("_connection", "_doorman", "_start")

    violation: ProtocolViolation | None = None
    wants_flush = False

    def __init__(self, doorman: Doorman) -> None:
        self._doorman = doorman
        self._start = b""

    def attach(self, connection: Connection) -> None:
        self._connection = connection

    def allow(self, max_frame_bytes: int) -> None: ...

    def feed(self, data: bytes) -> list[bytes]:
        self._start += data
        connection, start = self._connection, self._start
        if any(method.startswith(start) for method in _HTTP_METHODS):
            return []  # could still become either
        max_hello_bytes = connection.limits.max_hello_bytes
        if start.startswith(_HTTP_METHODS):
            connection.framer = ServerFramer(max_hello_bytes, self._admit)
        else:
            connection.framer = LineFramer(max_hello_bytes)
        # Run the whole of data_received again: the new framer may have something to say.
        connection.data_received(start)
        return []

    def _admit(self, request: Request) -> Page | None:
        """Remember the token that came with the request, and have the doorman look at the rest."""
        connection = self._connection
        if token := token_of(request):
            connection.credentials = msgspec.structs.replace(connection.credentials, token=token)
        return self._doorman.look_at(request)

    def encode(self, frames: list[bytes]) -> list[bytes]:
        """Only a refusal is sent before the peer has spoken, and it is sent as a line."""
        buffers = [frame + b"\n" for frame in frames]
        frames.clear()
        return buffers

    def encode_close(self, code: int, reason: str) -> list[bytes]:
        return []

    def encode_ping(self) -> list[bytes]:
        return []
