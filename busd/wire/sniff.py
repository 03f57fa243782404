"""Detect by the first byte whether a connection uses lines or HTTP (and so WebSocket)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from websockets.http11 import Request

from busd.errors import ProtocolViolation
from busd.wire.connection import Connection
from busd.wire.credentials import without_loopback
from busd.wire.http_gate import HttpGate, Page, is_forwarded, token_of
from busd.wire.lines import LineFramer
from busd.wire.websocket import BAD_REQUEST, ServerFramer

_LINES_BEGIN_WITH = b"{[ \t\r\n"


class Sniffer:
    """The framer of a connection before its first byte; replaces itself by the right one.

    One byte decides. JSON lines begin with `{`, `[` or white space. A web page can make a browser
    send nearly any text, but always after an HTTP method; so input that begins with a letter is
    never parsed as lines.
    """

    __slots__ = ("_connection", "_gate", "violation")

    wants_flush = False
    has_pings = False
    held_bytes = 0

    def __init__(self, gate: HttpGate) -> None:
        self._gate = gate
        self.violation: ProtocolViolation | None = None

    def attach(self, connection: Connection) -> None:
        self._connection = connection

    def allow(self, max_frame_bytes: int) -> None: ...

    def feed(self, data: bytes) -> Iterable[bytes | None]:
        connection = self._connection
        max_hello_bytes = connection.limits.max_hello_bytes
        if data[0] in _LINES_BEGIN_WITH:
            connection.framer = LineFramer(max_hello_bytes)
        elif data[:1].isalpha():
            connection.framer = ServerFramer(max_hello_bytes, self._admit)
        else:
            self.violation = ProtocolViolation("neither JSON lines nor HTTP", rule="handshake")
            return []
        return connection.framer.feed(data)

    def _admit(self, request: Request) -> Page | None:
        """Store the token of the request, then return the gate's answer to it."""
        connection = self._connection
        if token := token_of(request):
            connection.credentials = msgspec.structs.replace(connection.credentials, token=token)
        if is_forwarded(request):
            connection.credentials = without_loopback(connection.credentials)
        return self._gate.answer(request)

    def encode(self, frames: list[bytes]) -> list[bytes]:
        """Encode as lines: nothing but a refusal is sent before the peer's first byte."""
        buffers = [frame + b"\n" for frame in frames]
        frames.clear()
        return buffers

    def encode_close(self, code: int, reason: str) -> list[bytes]:
        return [BAD_REQUEST] if self.violation is not None else []

    def encode_ping(self) -> list[bytes]:
        return []
