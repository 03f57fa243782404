"""Decide by its first byte whether a connection speaks lines or HTTP (and so WebSocket)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from websockets.http11 import Request

from busd.errors import ProtocolViolation
from busd.wire.connection import Connection
from busd.wire.credentials import without_loopback
from busd.wire.doorman import Doorman, Page, is_forwarded, token_of
from busd.wire.lines import LineFramer
from busd.wire.websocket import BAD_REQUEST, ServerFramer

_LINES_BEGIN_WITH = b"{[ \t\r\n"


class Sniffer:
    """The framer of a connection that has not said anything yet; puts the right one in its place.

    One byte decides. JSON lines begin with `{`, `[` or white space. A web page can make a browser
    send nearly any text, but always behind an HTTP method; so nothing that begins with a letter is
    ever read as lines.
    """

    __slots__ = ("_connection", "_doorman", "violation")

    wants_flush = False
    has_pings = False
    held_bytes = 0

    def __init__(self, doorman: Doorman) -> None:
        self._doorman = doorman
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
        """Remember the token that came with the request, and have the doorman look at the rest."""
        connection = self._connection
        if token := token_of(request):
            connection.credentials = msgspec.structs.replace(connection.credentials, token=token)
        if is_forwarded(request):
            connection.credentials = without_loopback(connection.credentials)
        return self._doorman.look_at(request)

    def encode(self, frames: list[bytes]) -> list[bytes]:
        """Only a refusal is sent before the peer has spoken, and it is sent as a line."""
        buffers = [frame + b"\n" for frame in frames]
        frames.clear()
        return buffers

    def encode_close(self, code: int, reason: str) -> list[bytes]:
        return [BAD_REQUEST] if self.violation is not None else []

    def encode_ping(self) -> list[bytes]:
        return []
