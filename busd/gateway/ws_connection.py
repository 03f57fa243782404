"""WebSocket connections: what uvicorn runs an application with, bounded in every respect.

uvicorn's own class parses a chunk at once and queues all of its frames, of which there can be
40,000, and answers any number of pings. Here the rest of a chunk waits until the application has
taken the first message in it, and frames without a message are charged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from uvicorn.server import ServerState

from busd.gateway.http_connection import GatewayConfig
from busd.gateway.limits import STRANGER_FRAME_BYTES, Allowance, Budget, Holding
from busd.gateway.ws_application import run_application
from busd.gateway.ws_framer import Fields, GatewayFramer
from busd.wire.driver import Promise

GOING_AWAY, LOST, TOO_LARGE, FAILED, RESTARTING, OVERLOADED = 1001, 1006, 1009, 1011, 1012, 1013
_SENDABLE = {*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)}
# Control frames and fragments, which are no message for the application.
_MINOR_PER_SECOND, _MINOR_AT_ONCE = 200.0, 500.0
_LINGER_SECONDS = 5.0  # for the client to read the last frames
_MAX_UNANSWERED = 2  # pings
_MAX_REASON_BYTES = 100
_END: Any = object()
_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: 35\r\nConnection: close\r\n\r\nThis is no request for a WebSocket.\n"
)


class WebSocketConnection:
    """One WebSocket, with the methods of an asyncio.Protocol."""

    __slots__ = (
        "_chunk_bytes",
        "_chunks",
        "_framer",
        "_input",
        "_is_closing",
        "_is_paused",
        "_is_put_off",
        "_is_started",
        "_linger",
        "_loop",
        "_messages",
        "_minor",
        "_output",
        "_reader",
        "_server",
        "_steps",
        "_unanswered",
        "_writer",
        "close_code",
        "config",
        "is_lost",
        "max_unsent_bytes",
        "state",
        "transport",
    )

    def __init__(
        self,
        config: GatewayConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: Any,  # asyncio's
    ) -> None:
        self.config = config
        self.state = {**app_state, "connection": self}
        self.transport: Any = None
        self.max_unsent_bytes = STRANGER_FRAME_BYTES
        self.close_code: int | None = None  # set by whoever closes it first
        self._server = server_state
        self._loop = _loop
        self._framer = GatewayFramer(STRANGER_FRAME_BYTES)
        self._chunks: deque[bytes] = deque()
        self._chunk_bytes = 0  # of chunks that are not parsed to their end
        self._steps: Iterator[bytes | None] | None = None
        self._messages: deque[bytes] = deque()
        self._minor: Allowance | None = None
        self._reader: Promise | None = None  # waits for a message
        self._writer: Promise | None = None  # waits until the client has read something
        self._is_started = self._is_closing = self.is_lost = False
        self._is_paused = self._is_put_off = False
        self._linger: Any = None  # the timer of the last seconds
        self._unanswered = 0  # pings since the client was heard last
        self._input, self._output = Holding(), Holding()

    # What the transport calls

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._server.connections.add(self)  # type: ignore[arg-type]  # only uvicorn's have a type

    def data_received(self, data: bytes) -> None:
        self._unanswered = 0
        if self._is_closing:
            return  # the client does not know yet that it is over
        self._chunks.append(data)
        self._chunk_bytes += len(data)
        if not self._is_put_off and not self._messages:
            self._parse()
        if self._chunk_bytes and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def eof_received(self) -> None:
        """Let the transport close itself."""

    def pause_writing(self) -> None:
        self._writer = self._loop.create_future()

    def resume_writing(self) -> None:
        self._output.hold(0)
        if self._writer is not None:
            self._writer.set_result(None)
            self._writer = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = self._is_closing = True
        self._server.connections.discard(self)
        self.config.sockets.drop(self)
        if self._linger is not None:
            self._linger.cancel()
        self._chunks.clear()
        self._chunk_bytes = 0
        self._steps = None
        self._input.hold(0)
        self.resume_writing()
        self._end(LOST)

    # Parsing

    def _parse(self) -> None:
        """Parse what has arrived until there is a message for the application."""
        self._is_put_off = False
        if self.is_lost:
            return  # it must not be charged for anything any more
        while not self._messages and self.close_code is None and self._has_more():
            frame = next(self._steps or iter(()), _END)
            if frame is _END:
                self._end_chunk()
            elif frame is not None:
                self._messages.append(frame)
                self._wake()
            if self._framer.minor_frames and self._must_wait():
                break
        if not self._input.hold(self._framer.held_bytes + self._chunk_bytes):
            self._end(OVERLOADED)
        if self._is_paused and not self._chunk_bytes and not self._is_put_off:
            self._is_paused = False
            self.transport.resume_reading()

    def _has_more(self) -> bool:
        is_waiting = self._is_started and not self._framer.is_open  # for the application's answer
        if self._steps is None and self._chunks and not is_waiting:
            self._steps = iter(self._framer.feed(self._chunks.popleft()))
        return self._steps is not None

    def _end_chunk(self) -> None:
        framer = self._framer
        self._steps = None
        self._chunk_bytes = sum(map(len, self._chunks))
        if framer.violation is not None:
            is_closed = framer.violation.rule == "goodbye"
            self._end(framer.close_code if is_closed else framer.violation.close_code)
        elif framer.wants_flush:
            self._write(framer.encode([]))
        if not self._is_started:
            self._is_started = True
            self._start()

    def _start(self) -> None:
        """Run the application, if the request is one for a WebSocket."""
        response = self._framer.response
        if response is not None and response.status_code == 101:
            task = self._loop.create_task(run_application(self))
            self._server.tasks.add(task)
            task.add_done_callback(self._server.tasks.discard)
            return
        self._write([_BAD_REQUEST] if response is None else self._framer.accept())
        self._close_transport()

    def _must_wait(self) -> bool:
        """Charge control frames and fragments; put the rest off if there were too many."""
        if self._minor is None:
            self._minor = Allowance(_MINOR_PER_SECOND, _MINOR_AT_ONCE)
        seconds = self._minor.charge(self._framer.minor_frames)
        self._framer.minor_frames = 0
        if seconds:
            self._is_put_off = True
            self._loop.call_later(seconds, self._parse)
        return bool(seconds)

    def _end(self, code: int) -> None:
        if self.close_code is None:
            self.close_code = code
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None:
            if not self._reader.done():
                self._reader.set_result(None)
            self._reader = None

    # What the application calls

    @property
    def request(self) -> Any:
        return self._framer.request

    async def next_message(self) -> bytes | None:
        """Return the next message, a `Binary` if it is one; None: the WebSocket is closed."""
        while not self._messages:
            if self.close_code is not None:
                return None
            self._reader = self._loop.create_future()
            await self._reader
        message = self._messages.popleft()
        if not self._messages and not self._is_put_off:
            self._parse()
        return message

    def accept(self, fields: Fields, subprotocol: str | None) -> None:
        self._write(self._framer.accept(fields, subprotocol))
        self._parse()

    def reject(self, status: int, fields: Fields, body: bytes) -> None:
        self._is_closing = True
        self._write(self._framer.reject(status, fields, body))
        self._close_transport()

    def send_text(self, frame: bytes) -> None:
        """Send a text frame without waiting; close the connection if too much is unread."""
        if not self._is_closing:
            self._write(self._framer.encode([frame]))

    async def send_when_writable(self, frame: bytes, *, is_text: bool) -> None:
        """Send a frame once the client has read most of what was sent before."""
        while self._writer is not None:
            await self._writer
        if not self._is_closing:
            encode = self._framer.encode
            self._write(encode([frame]) if is_text else self._framer.encode_binary(frame))

    def ping(self) -> None:
        """Send a ping, or close the connection if the client has not answered the last ones."""
        if self._is_closing or self._is_paused:
            return
        if self._unanswered >= _MAX_UNANSWERED:
            self.transport.abort()
            return
        self._unanswered += 1
        self._write(self._framer.encode_ping())

    def close(self, code: int, reason: str = "") -> None:
        """Close the WebSocket; the client has some seconds to read what was sent."""
        self._end(code)
        if self._is_closing:
            return
        self._is_closing = True
        if not self._framer.is_open and self._framer.violation is None:
            self._close_transport()
            return
        code = code if code in _SENDABLE else GOING_AWAY
        reason = reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore")
        self.transport.writelines(self._framer.encode_close(code, reason))
        if self._framer.violation is not None and self._framer.violation.rule == "goodbye":
            self._close_transport()
            return
        # Not closed yet: if there is unread input, the kernel would drop what we have sent.
        self.transport.write_eof()
        if self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()
        self._leave_soon()

    def _close_transport(self) -> None:
        """Close the connection when what was sent is on its way."""
        self.transport.close()
        self._leave_soon()

    def _leave_soon(self) -> None:
        """Close the connection for good unless the client reads what was sent in time."""
        if not self.is_lost and self._linger is None:
            self.config.sockets.leave(self)
            self._linger = self._loop.call_later(_LINGER_SECONDS, self.abort)

    def abort(self) -> None:
        self.transport.abort()

    def shutdown(self) -> None:
        """Close the WebSocket, as the server stops."""
        self.close(RESTARTING)

    def give_way(self) -> None:
        """Close the connection without delay."""
        self.close(OVERLOADED, "too many connections that have not authenticated")
        self.transport.close()

    def admit(self, max_frame_bytes: int, max_unsent_bytes: int, budget: Budget) -> None:
        """Allow what a client may that has authenticated."""
        self._framer.allow(max_frame_bytes)
        self.max_unsent_bytes = max_unsent_bytes
        self._input.move(budget)
        self._output.move(budget)

    def _write(self, buffers: Iterable[bytes]) -> None:
        if self.is_lost:
            return
        self.transport.writelines(buffers)
        size = self.transport.get_write_buffer_size()
        if size > self.max_unsent_bytes or not self._output.hold(size):
            self.close(OVERLOADED, "the client does not read what it gets")
