"""HTTP connections: uvicorn's, with bounds for what a client sends and for the time it takes.

uvicorn parses a chunk at once. A chunk of 256 KiB can hold 40,000 chunks of a body, which take a
second. Here a connection parses a piece in each turn of the loop, and reads nothing meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from busd.gateway.identity import Remote
from busd.gateway.limits import Allowance, Budget, Holding
from busd.gateway.open_sockets import OpenSockets

MAX_HEAD_BYTES = 16 * 1024
_PIECE_BYTES = 1024  # parsed at once; 170 chunks of a body fit into it
_BODY_PIECE_BYTES = 16 * 1024  # of a body whose length is known
# Of a body that was answered before all of it has come. If the connection were closed at once, the
# client would lose the answer while it still sends.
_MAX_DISCARDED_BYTES = 2 * 1024 * 1024
# Lines of heads, and of bodies in chunks, which have two for each chunk.
_LINES_PER_SECOND, _LINES_AT_ONCE = 1_000.0, 1_000.0
_MAX_UPGRADE_HEADERS, _MAX_UPGRADE_LINE_BYTES = 100, 8_000  # what `websockets` reads
_KEEP_ALIVE_SECONDS = 10
_READ = "READ"  # what a client has to do that gets more than it reads
_GRACES = 6  # times that a client may be late that still reads the last answer


class GatewayConfig(uvicorn.Config):
    """uvicorn's configuration; `sockets` is for our connections."""

    def __init__(self, app: Any, sockets: OpenSockets, web_socket: type[Any]) -> None:
        self.sockets = sockets
        super().__init__(
            app,
            http=HttpConnection,
            ws=web_socket,
            lifespan="off",
            log_config=None,
            access_log=False,  # the query of a request may contain a token
            proxy_headers=False,  # they would replace the address of the sender
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )


class HttpConnection(H11Protocol):
    """One HTTP connection; it may become a WebSocket."""

    config: GatewayConfig

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._sockets = self.config.sockets
        self._is_counted = False
        self._awaits: object = None  # the state of h11 when we last looked
        self._late = 0
        self._discarded_bytes = 0  # since the last answer
        self._rest = b""  # not parsed yet; nothing is read meanwhile
        self._turn: Any = None  # the timer of the next piece
        self._lines = Allowance(_LINES_PER_SECOND, _LINES_AT_ONCE, refused_cost=1)
        self._output = Holding()
        self._successor: Any = None  # the WebSocket that it has become
        self.on_lost: Callable[[], None] | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.flow = _Flow(self)
        self._is_counted = self._sockets.add(self)
        if not self._is_counted:
            transport.abort()
        self.app_state = {**self.app_state, "remote": Remote(transport), "connection": self}

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._output.hold(0)
        if self._is_counted:
            self._is_counted = False
            self._sockets.remove(self)
        if self._turn is not None:
            self._turn.cancel()
        self._rest = b""
        if self.on_lost is not None:
            self.on_lost()

    # Input

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._rest += data
        if self._turn is None and len(self._rest) <= _PIECE_BYTES:
            self._parse()
        else:
            self.parse_later()

    def parse_later(self, seconds: float = 0.0) -> None:
        """Parse the next piece in a later turn; read nothing until then."""
        self.transport.pause_reading()
        if self._turn is None:
            self._turn = self.loop.call_later(seconds, self._parse)

    def _parse(self) -> None:
        self._turn = None
        if self.flow.read_paused or self._is_over:
            return  # the first answer is not complete, or nobody is there to get another one
        if not self._rest:
            self.transport.resume_reading()
            return
        is_plain = self._is_plain_body
        size = _BODY_PIECE_BYTES if is_plain else _PIECE_BYTES
        piece, self._rest = self._rest[:size], self._rest[size:]
        super().data_received(piece)
        if self._is_over or not self._may_discard(len(piece)):
            return
        self._watch()
        seconds = 0.0 if is_plain else self._lines.charge(piece.count(b"\n"))
        if self._rest or seconds:
            self.parse_later(seconds)
        elif not self.flow.read_paused:
            self.transport.resume_reading()

    def _may_discard(self, size: int) -> bool:
        """Count what follows an answer and belongs to its request; close if that is too much."""
        if self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY:
            self._discarded_bytes += size
            if self._discarded_bytes > _MAX_DISCARDED_BYTES:
                self.abort()
                return False
        return True

    @property
    def holds_data(self) -> bool:
        """Whether there is data to be parsed later, or nothing may come until then."""
        return self._successor is None and (bool(self._rest) or self._turn is not None)

    @property
    def _is_over(self) -> bool:
        return self._successor is not None or self.transport.is_closing()

    @property
    def _is_plain_body(self) -> bool:
        """Whether what comes next is the body of a request that has told its length."""
        if self.conn.their_state is not h11.SEND_BODY:
            return False
        return all(name != b"transfer-encoding" for name, _ in self.headers)

    def hold(self, size: int, budget: Budget) -> bool:
        """Charge an answer until it is read; return whether the budget suffices."""
        self._output.move(budget)
        return self._output.hold(self.transport.get_write_buffer_size() + size)

    @property
    def is_lost(self) -> bool:
        return bool(self.transport.is_closing())

    # What the client has to do next

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._output.hold(self.transport.get_write_buffer_size())
        self._late = self._discarded_bytes = 0
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._output.hold(0)
        self._watch()

    def _watch(self) -> None:
        """Set the deadline for what the client has to do next, if that has changed."""
        awaits = self._awaited()
        if awaits is self._awaits or self._successor is not None or not self._is_counted:
            return
        self._awaits = awaits
        if awaits is h11.SEND_BODY:
            self._sockets.await_body(self)
        elif awaits in (_READ, h11.IDLE):
            self._sockets.await_head(self)
        else:
            self._sockets.satisfy(self)

    def _awaited(self) -> object:
        """Return what the client has to do: read an answer, or what h11 waits for."""
        must_read = self.flow.write_paused or self.transport.is_closing()
        return _READ if must_read else self.conn.their_state

    def expire(self) -> None:
        """Close the connection, unless the client still reads the last answer."""
        if self._late < _GRACES and self.transport.get_write_buffer_size():
            self._late += 1
            self._sockets.await_head(self)
        else:
            self.abort()

    def abort(self) -> None:
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None:  # the application cannot answer any more
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # in the middle of an answer
            self.transport.abort()
        self._watch()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        lines = [b"%s: %s\r\n" % header for header in self.headers]
        first = b"%s %s HTTP/1.1\r\n" % (event.method, event.target)
        longest = max(map(len, (first, *lines)))
        if len(lines) > _MAX_UPGRADE_HEADERS or longest > _MAX_UPGRADE_LINE_BYTES:
            self.send_400_response("The request has too many headers, or too long ones.\n")
            return
        self._become(self.ws_protocol_class, b"".join([first, *lines, b"\r\n"]))

    def _become(self, protocol_class: Any, head: bytes) -> None:
        self.connections.discard(self)
        self._output.hold(0)
        self._is_counted = False
        self._sockets.satisfy(self)
        self._successor = protocol_class(
            config=self.config,
            server_state=self.server_state,
            app_state=self.app_state,
            _loop=self.loop,
        )
        self._successor.connection_made(self.transport)
        self.transport.set_protocol(self._successor)
        self.transport.resume_reading()
        self._successor.data_received(head)
        early = self.conn.trailing_data[0] + self._rest
        self._rest = b""
        if early:
            self._successor.data_received(early)


class _Flow(FlowControl):
    """uvicorn's flow control, of a connection that also waits until it has parsed what it has."""

    def __init__(self, connection: HttpConnection) -> None:
        super().__init__(connection.transport)
        self._connection = connection

    def resume_reading(self) -> None:
        if self._connection.holds_data:
            self.read_paused = False
            self._connection.parse_later()
        else:
            super().resume_reading()
