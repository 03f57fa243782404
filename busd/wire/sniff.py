"""Decide by its first bytes whether a connection speaks lines or HTTP (and so WebSocket)."""

from __future__ import annotations

from urllib.parse import urlsplit

from websockets.http11 import Request

from busd.errors import ProtocolViolation
from busd.wire.connection import Connection
from busd.wire.lines import LineFramer
from busd.wire.websocket import Admit, ServerFramer

_HTTP_METHODS = (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"OPTIONS ", b"DELETE ", b"PATCH ")
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class Sniffer:
    """The framer of a connection that has not said enough yet; puts the right one in its place."""

    __slots__ = ("_admit", "_connection", "_start")

    violation: ProtocolViolation | None = None
    wants_flush = False

    def __init__(self, admit: Admit) -> None:
        self._admit = admit
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

    def encode(self, frames: list[bytes]) -> list[bytes]:
        """Only a refusal is sent before the peer has spoken, and it is sent as a line."""
        buffers = [frame + b"\n" for frame in frames]
        frames.clear()
        return buffers

    def encode_close(self, code: int, reason: str) -> list[bytes]:
        return []

    def encode_ping(self) -> list[bytes]:
        return []


def admit_web_socket(allowed_origins: tuple[str, ...]) -> Admit:
    """Give the check of an HTTP request: only path `/`, and no page of another site.

    A browser names the page's site in `Origin`. It must be this very bus, reached by a loopback
    name (a foreign domain may be made to point at us: DNS rebinding), or be listed.
    """

    def admit(request: Request) -> tuple[int, str] | None:
        path = urlsplit(request.path).path
        if path != "/":
            return 404, f"There is nothing at {path}; the bus is at /.\n"
        origins = request.headers.get_all("Origin")
        if not origins or (len(origins) == 1 and origins[0] in allowed_origins):
            return None
        hosts = request.headers.get_all("Host")
        if len(origins) == 1 and len(hosts) == 1 and _is_same_site(origins[0], hosts[0]):
            return None
        return 403, f"Origin {origins[0]!r} may not use this bus; see allowed_origins.\n"

    return admit


def _is_same_site(origin: str, host: str) -> bool:
    try:
        page, bus = urlsplit(origin), urlsplit(f"//{host}")
        names_match = page.hostname == bus.hostname and page.port == bus.port
    except ValueError:  # a port that is no number
        return False
    return names_match and page.hostname in _LOOPBACK_NAMES
