"""WebSocket framing over the Sans-I/O layer of `websockets`, for the bus and for its clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidMessage, PayloadTooBig
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import Protocol, State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from busd.errors import ProtocolViolation
from busd.wire.http_gate import Page
from busd.wire.lines import JOIN_BYTES
from busd.wire.turns import PIECE_BYTES

try:
    from websockets.speedups import apply_mask
except ImportError:  # built without its C part
    from websockets.utils import apply_mask

_FIN_TEXT = 0x81
_HEAD_END = b"\r\n\r\n"
_PARSED_BYTES = 1_024  # parsed at once
_MASKED_HEADER_BYTES = 8  # at most, for frames below 64 KiB

_BAD_REQUEST_TEXT = b"The bus speaks lines of JSON, or WebSocket at /.\n"
BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%s"
) % (len(_BAD_REQUEST_TEXT), _BAD_REQUEST_TEXT)

# Decides on an HTTP request before it becomes a WebSocket: None admits it, a page answers it.
Admit = Callable[[Request], Page | None]


class WebSocketFramer:
    """One frame of ours per text message; answers control frames itself."""

    __slots__ = ("_max_frame_bytes", "_message", "_protocol", "violation", "wants_flush")
    has_pings = True

    def __init__(self, protocol: Protocol, max_frame_bytes: int) -> None:
        self._protocol = protocol
        self._max_frame_bytes = max_frame_bytes
        # Fragments go straight into one buffer: a million empty ones must not become a list.
        self._message: bytearray | None = None
        self.violation: ProtocolViolation | None = None
        self.wants_flush = False

    @property
    def held_bytes(self) -> int:
        return len(self._protocol.reader.buffer) + len(self._message or b"")

    def allow(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._protocol.max_message_size = max_frame_bytes

    def feed(self, data: bytes) -> Iterable[bytes | None]:
        return self._parse(data) if len(data) <= _PARSED_BYTES else self._parse_pieces(data, 0)

    def _parse_pieces(self, data: bytes, at: int) -> Iterator[bytes | None]:
        """Parse a long chunk from `at` on, piece by piece, with None after each.

        `websockets` parses all of its input at once, and 170 empty pings fit into a KiB.
        """
        while at < len(data) and self.violation is None:
            yield from self._parse(data[at : at + _PARSED_BYTES])
            yield None
            at += _PARSED_BYTES

    def _parse(self, data: bytes) -> list[bytes]:
        """Pass bytes to `websockets` and return the frames that they complete."""
        protocol = self._protocol
        if self.violation is not None:
            return []
        protocol.receive_data(data)
        frames: list[bytes] = []
        for event in protocol.events_received():
            if isinstance(event, Frame):
                self._take(event, frames)
            else:
                self._shake_hands(event)
        # A parser that failed before the handshake was answered shows it in no other way.
        if self.violation is None and (protocol.parser_exc or protocol.close_expected()):
            self.violation = self._explain_close()
        self.wants_flush = bool(protocol.writes)
        return frames

    def _take(self, frame: Frame, frames: list[bytes]) -> None:
        opcode = frame.opcode
        if opcode is Opcode.TEXT:
            if frame.fin:
                frames.append(bytes(frame.data))
            else:
                self._message = bytearray(frame.data)
        elif opcode is Opcode.CONT and self._message is not None:
            self._message += frame.data
            if frame.fin:
                frames.append(bytes(self._message))
                self._message = None
        elif opcode is Opcode.BINARY and self.violation is None:
            self.violation = ProtocolViolation(
                "binary frame: the bus speaks text frames", rule="text_frames", close_code=1003
            )

    def _shake_hands(self, event: object) -> None:
        """Handle the opening handshake; clients and servers differ."""

    def _explain_close(self) -> ProtocolViolation:
        """Return why the WebSocket is closed, by either side."""
        protocol = self._protocol
        if isinstance(protocol.parser_exc, PayloadTooBig):
            return ProtocolViolation(
                f"frame over {self._max_frame_bytes} bytes", rule="max_frame_bytes", close_code=1009
            )
        if protocol.parser_exc is not None:
            reason = protocol.close_sent.reason if protocol.close_sent else ""
            return ProtocolViolation(f"not WebSocket: {reason}", rule="websocket")
        if protocol.handshake_exc is not None:
            return ProtocolViolation(f"no WebSocket: {protocol.handshake_exc}", rule="handshake")
        return ProtocolViolation("closed by the peer", rule="goodbye", close_code=1000)

    def encode(self, frames: list[bytes]) -> list[bytes]:
        protocol = self._protocol
        if protocol.state is State.OPEN:
            for frame in frames:
                protocol.send_text(frame)
            frames.clear()
        elif protocol.state is State.CLOSING and protocol.close_rcvd is None:
            # `websockets` has already queued its close frame; encode_close() returns it, after
            # the answers and the error reply that are still to be sent.
            mask = isinstance(protocol, ClientProtocol)
            last_frames = [Frame(Opcode.TEXT, frame).serialize(mask=mask) for frame in frames]
            frames.clear()
            return last_frames
        return [data for data in protocol.data_to_send() if data]

    def encode_close(self, code: int, reason: str) -> list[bytes]:
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code, reason[:100])
        return [data for data in self._protocol.data_to_send() if data]

    def encode_ping(self) -> list[bytes]:
        if self._protocol.state is not State.OPEN:
            return []
        self._protocol.send_ping(b"busd")
        return self._protocol.data_to_send()


class ServerFramer(WebSocketFramer):
    """The bus's side of a WebSocket."""

    __slots__ = ("_admit", "_head_end")

    def __init__(self, max_frame_bytes: int, admit: Admit) -> None:
        # No extensions: permessage-deflate would allow decompression bombs.
        super().__init__(ServerProtocol(max_size=max_frame_bytes), max_frame_bytes)
        self._admit = admit
        self._head_end = b""  # last bytes of the request so far: its end may be split

    def feed(self, data: bytes) -> Iterable[bytes | None]:
        """Parse whole text frames at the start of a chunk here, the rest with `websockets`.

        The full parser takes 4.5 µs per frame, and nearly all frames do not need it.
        """
        if self._protocol.state is State.CONNECTING:
            return self._read_head(data)
        if not self._is_between_frames():
            return super().feed(data)
        self.wants_flush = False
        return self._read_whole_frames(data)

    def _read_head(self, data: bytes) -> Iterator[bytes | None]:
        """Read the request; read what follows it only if it has become a WebSocket.

        `websockets` would parse the bytes after any request as frames, before it is answered.
        """
        seen = self._head_end + data
        end = seen.find(_HEAD_END)
        if end < 0:
            self._head_end = seen[-len(_HEAD_END) + 1 :]
            yield from super().feed(data)
            return
        at = end + len(_HEAD_END) - len(self._head_end)
        yield from super().feed(data[:at])
        if self._protocol.state is State.OPEN and at < len(data):
            yield from self.feed(data[at:])
            self.wants_flush = bool(self._protocol.writes)

    def _is_between_frames(self) -> bool:
        """True if the next byte begins a frame, of a message of its own."""
        protocol = self._protocol
        if protocol.state is not State.OPEN or self._message is not None:
            return False
        # An empty buffer is not enough: header and mask may have been read from it already.
        # Between frames, and only there, the parser waits for bytes or the end.
        waits_in: Any = protocol.parser
        while (inner := getattr(waits_in, "gi_yieldfrom", None)) is not None:
            waits_in = inner
        return getattr(waits_in, "__name__", "") == "at_eof"

    def _read_whole_frames(self, data: bytes) -> Iterator[bytes | None]:
        """Return the masked, unfragmented text frames that `data` begins with, then the others.

        Each is checked when it is requested: frames after `initialize` may be longer.
        """
        at, end, look_at = 0, len(data), PIECE_BYTES
        while end - at > _MASKED_HEADER_BYTES and data[at] == _FIN_TEXT:
            size = data[at + 1] - 128
            if not 0 <= size <= 126:
                break  # without the mask it must have, or 64 KiB and more
            mask = at + 2
            if size == 126:
                mask = at + 4
                size = int.from_bytes(data[at + 2 : mask])
            stop = mask + 4 + size
            if stop > end or size > self._max_frame_bytes:
                break
            yield apply_mask(data[mask + 4 : stop], data[mask : mask + 4])
            at = stop
            if at > look_at:
                look_at = at + PIECE_BYTES
                yield None
        if at < end:
            yield from self._parse_pieces(data, at)

    def encode(self, frames: list[bytes]) -> list[bytes]:
        """Encode text frames without `websockets`: 0.2 µs per frame, a Frame object takes 1.5."""
        if self._protocol.state is not State.OPEN:
            return super().encode(frames)
        buffers = self._protocol.data_to_send()  # first: it may be the answer to the handshake
        for frame in frames:
            size = len(frame)
            if size < 126:
                buffers.append(bytes((_FIN_TEXT, size)))
            elif size < 65_536:
                buffers.append(bytes((_FIN_TEXT, 126, size >> 8, size & 255)))
            else:
                buffers.append(bytes((_FIN_TEXT, 127)) + size.to_bytes(8))
            buffers.append(frame)
        is_short = sum(map(len, buffers)) <= JOIN_BYTES or len(frames) > 1
        frames.clear()
        return [b"".join(buffers)] if buffers and is_short else buffers

    def encode_close(self, code: int, reason: str) -> list[bytes]:
        if isinstance(self._protocol.handshake_exc, InvalidMessage):
            return [BAD_REQUEST]  # `websockets` only ends the stream
        return super().encode_close(code, reason)

    def _shake_hands(self, event: object) -> None:
        protocol = self._protocol
        assert isinstance(protocol, ServerProtocol)
        assert isinstance(event, Request)
        page = self._admit(event)
        if page is None:
            response = protocol.accept(event)
        else:
            response = protocol.reject(page.status, page.text)
            del response.headers["Content-Type"]
            response.headers["Content-Type"] = page.content_type
        if event.method == "HEAD":
            response.body = b""  # its length is still announced
        protocol.send_response(response)


class ClientFramer(WebSocketFramer):
    """A client's side of a WebSocket; frames sent before it is open wait for the handshake."""

    __slots__ = ()

    def __init__(self, url: str, max_frame_bytes: int) -> None:
        protocol = ClientProtocol(parse_uri(url), max_size=max_frame_bytes)
        super().__init__(protocol, max_frame_bytes)
        protocol.send_request(protocol.connect())

    def _shake_hands(self, event: object) -> None:
        protocol = self._protocol
        assert isinstance(protocol, ClientProtocol)
        assert isinstance(event, Response)
        if protocol.handshake_exc is not None:
            text = bytes(event.body or b"").decode(errors="replace").strip()
            self.violation = ProtocolViolation(
                f"the bus answered HTTP {event.status_code}: {text}", rule="handshake"
            )

    def feed(self, data: bytes) -> list[bytes]:
        was_open = self._protocol.state is not State.CONNECTING
        frames = [
            frame for frame in super().feed(data) if frame is not None
        ]  # a client trusts its bus
        self.wants_flush = self.wants_flush or not was_open
        return frames
