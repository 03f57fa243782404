"""WebSocket framing of the gateway: that of the bus, with binary frames and a later handshake."""

from __future__ import annotations

from collections.abc import Iterable

from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from busd.wire.websocket import ServerFramer

Fields = Iterable[tuple[str, str]]  # of a header


class Binary(bytes):
    """The content of a binary frame."""


class GatewayFramer(ServerFramer):
    """The gateway's side of a WebSocket; the application accepts or rejects the request."""

    __slots__ = ("_is_binary", "minor_frames", "request", "response")

    def __init__(self, max_frame_bytes: int) -> None:
        super().__init__(max_frame_bytes, lambda request: None)
        self._is_binary = False
        self.request: Request | None = None
        self.response: Response | None = None
        self.minor_frames = 0  # control frames and fragments since the connection looked

    @property
    def _server(self) -> ServerProtocol:
        assert isinstance(self._protocol, ServerProtocol)
        return self._protocol

    @property
    def is_open(self) -> bool:
        return self._server.state is State.OPEN

    @property
    def close_code(self) -> int:
        """The code with which the client has closed the WebSocket; 1006: with none."""
        received = self._server.close_rcvd
        return 1006 if received is None else received.code

    def _shake_hands(self, event: object) -> None:
        assert isinstance(event, Request)
        self.request = event
        self.response = self._server.accept(event)

    def accept(self, fields: Fields = (), subprotocol: str | None = None) -> list[bytes]:
        """Return the answer that opens the WebSocket, or says what is wrong with the request."""
        assert self.response is not None
        for name, value in fields:
            self.response.headers[name] = value
        if subprotocol:
            self.response.headers["Sec-WebSocket-Protocol"] = subprotocol
        return self._answer(self.response)

    def reject(self, status: int, fields: Fields, body: bytes) -> list[bytes]:
        """Return an answer that opens no WebSocket."""
        response = self._server.reject(status, "")
        response.body = body
        del response.headers["Content-Length"], response.headers["Content-Type"]
        for name, value in fields:
            if name.lower() not in ("content-length", "connection"):
                response.headers[name] = value
        response.headers["Content-Length"] = str(len(body))
        return self._answer(response)

    def _answer(self, response: Response) -> list[bytes]:
        self._server.send_response(response)
        return [data for data in self._server.data_to_send() if data]

    def _take(self, frame: Frame, frames: list[bytes]) -> None:
        opcode = frame.opcode
        if opcode is Opcode.TEXT or opcode is Opcode.BINARY:
            self._is_binary = opcode is Opcode.BINARY
            self._message = bytearray(frame.data)
        elif opcode is Opcode.CONT and self._message is not None:
            self.minor_frames += 1
            self._message += frame.data
        else:
            self.minor_frames += 1
            return
        if frame.fin:
            frames.append((Binary if self._is_binary else bytes)(self._message))
            self._message = None

    def encode_binary(self, data: bytes) -> list[bytes]:
        """Encode a binary frame."""
        if self.is_open:
            self._server.send_binary(data)
        return [data for data in self._server.data_to_send() if data]
