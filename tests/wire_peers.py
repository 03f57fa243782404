"""Raw peers for the tests: blocking sockets that speak lines or WebSocket by hand.

They share no code with the bus, so that a mistake in its framing is not made here, too; and they
can say what no well-behaved client would.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
from collections import deque
from contextlib import ExitStack
from itertools import count
from typing import Any, Literal

from tests.daemons import PATIENCE_SECONDS, Daemon

Transport = Literal["unix", "tcp", "ws"]
Json = Any  # whatever json.loads gives

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
_REQUEST_LINES = (
    "GET / HTTP/1.1",
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
)


class Closed(Exception):
    """The bus has closed the connection; `code` is what a WebSocket said on closing."""

    def __init__(self, code: int | None = None) -> None:
        super().__init__(f"closed by the bus ({code})")
        self.code = code


class Peer:
    """One connection to the bus; subclasses know the framing."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.received = bytearray()
        self.waiting: deque[Json] = deque()  # came while something else was awaited
        self._ids = count(1_000)

    # Frames

    def send_bytes(self, frame: bytes) -> None:
        """Send one frame with this content."""
        raise NotImplementedError

    def read_frame(self) -> bytes:
        """Return the content of the next frame; raise Closed at the end of the stream."""
        raise NotImplementedError

    # JSON-RPC

    def send_json(self, value: Json) -> None:
        self.send_bytes(json.dumps(value).encode())

    def next_json(self) -> Json:
        """Return the next message that nobody has asked for yet."""
        if self.waiting:
            return self.waiting.popleft()
        return json.loads(self.read_frame())

    def request(self, method: str, params: Json = None, **members: Json) -> int:
        """Send a request and give its id."""
        request_id = next(self._ids)
        params = {} if params is None else params
        envelope = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        self.send_json(envelope | members)
        return request_id

    def answer_to(self, request_id: Json) -> Json:
        """Return the answer to a request; what else comes meanwhile waits for `next_json`."""
        for seen in list(self.waiting):
            if _answers(seen, request_id):
                self.waiting.remove(seen)
                return seen
        while True:
            found = json.loads(self.read_frame())
            if _answers(found, request_id):
                return found
            self.waiting.append(found)

    def call(self, method: str, params: Json = None) -> Json:
        """Make a request and give its result."""
        answer = self.answer_to(self.request(method, params))
        assert "result" in answer, answer
        return answer["result"]

    def initialize(self, client_id: str, **members: Json) -> Json:
        return self.call("initialize", {"clientId": client_id, **members})

    def send_message(self, to: str, payload: Json = None, **members: Json) -> int:
        """Send a message and give the id of the request."""
        return self.request("sendMessage", {"to": to, "payload": payload or {}, **members})

    def next_message(self) -> Json:
        """Return the next `processMessage` of the bus."""
        found = self.next_json()
        assert found.get("method") == "processMessage", found
        return found

    def answer(self, message: Json, result: Json) -> None:
        """Answer a `processMessage`."""
        self.send_json({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def expect_nothing(self) -> None:
        """Make sure that the bus has nothing to say but the answer to a ping."""
        self.call("ping")
        assert not self.waiting, self.waiting

    def expect_close(self) -> int | None:
        """Make sure that the bus says nothing more and closes; give the close code."""
        try:
            frame = self.read_frame()
        except Closed as closed:
            return closed.code
        raise AssertionError(f"instead of closing the bus said {frame!r}")

    # Bytes

    def read_some(self) -> None:
        """Wait for more bytes."""
        try:
            data = self.sock.recv(262_144)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Closed
        self.received += data

    def end(self) -> None:
        """Say that nothing more will come, and go on listening."""
        self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.sock.close()


class LinePeer(Peer):
    """A peer that speaks lines."""

    def send_bytes(self, frame: bytes) -> None:
        self.sock.sendall(frame + b"\n")

    def read_frame(self) -> bytes:
        while (at := self.received.find(b"\n")) < 0:
            self.read_some()
        frame = bytes(self.received[:at])
        del self.received[: at + 1]
        return frame


class WebSocketPeer(Peer):
    """A peer that speaks WebSocket (RFC 6455)."""

    def send_bytes(self, frame: bytes) -> None:
        self.send_frame(TEXT, frame)

    def send_frame(self, opcode: int, data: bytes, *, fin: bool = True, reserved: int = 0) -> None:
        self.sock.sendall(encode_frame(opcode, data, fin=fin, reserved=reserved))

    def read_frame(self) -> bytes:
        message = b""
        while True:
            fin, opcode, data = self.read_any_frame()
            if opcode == PING:
                self.send_frame(PONG, data)
            elif opcode == CLOSE:
                raise Closed(struct.unpack("!H", data[:2])[0] if data else None)
            elif opcode != PONG:
                message += data
                if fin:
                    return message

    def read_any_frame(self) -> tuple[bool, int, bytes]:
        """Return the next frame as it is, control frames included."""
        first, second = self._read(2)
        assert not second & 0x80, "a server must not mask"
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", self._read(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self._read(8))
        return bool(first & 0x80), first & 0x0F, self._read(length)

    def _read(self, size: int) -> bytes:
        while len(self.received) < size:
            self.read_some()
        data = bytes(self.received[:size])
        del self.received[:size]
        return data

    def shake_hands(self) -> None:
        status, _ = open_http(self, *_REQUEST_LINES, f"Sec-WebSocket-Key: {random_key()}")
        assert status == 101

    def close(self) -> None:
        try:
            self.send_frame(CLOSE, struct.pack("!H", 1000))
        except OSError:
            pass  # the bus was quicker
        super().close()


def connect(daemon: Daemon, transport: Transport) -> Peer:
    """Open a connection of the kind that the transport says."""
    sock = open_unix(daemon.path) if transport == "unix" else open_tcp(daemon.port)
    daemon.visitors.add(sock)
    if transport != "ws":
        return LinePeer(sock)
    peer = WebSocketPeer(sock)
    try:
        peer.shake_hands()
    except Closed:
        peer.sock.close()
        raise
    return peer


def join_by(daemon: Daemon, transport: Transport, name: str, opened: ExitStack) -> Peer:
    """Open a connection that has initialized under a name; it is closed with `opened`."""
    peer = connect(daemon, transport)
    opened.callback(peer.close)
    peer.initialize(name)
    return peer


def join_web_socket(daemon: Daemon, name: str, opened: ExitStack) -> WebSocketPeer:
    """The same for what only a WebSocket can do."""
    peer = join_by(daemon, "ws", name, opened)
    assert isinstance(peer, WebSocketPeer)
    return peer


def read_to_end(peer: Peer) -> None:
    """Read whatever comes until the bus closes the connection."""
    try:
        while True:
            peer.read_frame()
    except Closed:
        pass


def status_of(peer: Peer) -> list[dict[str, Json]]:
    """Return all connections as the bus shows them."""
    connections: list[dict[str, Json]] = peer.call("getStatus")["connections"]
    return connections


def until_gone(name: str, witness: Peer) -> None:
    """Ask the bus who is there until this one is not."""
    for _ in range(10_000):
        if name not in [each["clientId"] for each in status_of(witness)]:
            return
    raise AssertionError(f"{name} is still there")


def until_nobody_listens(daemon: Daemon) -> None:
    """Knock until the bus has closed its listeners: then it is stopping."""
    while True:
        try:
            open_tcp(daemon.port).close()
        except (ConnectionRefusedError, ConnectionResetError):
            return


def open_unix(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(path)  # without a time-out: with one it would fail when the backlog is full
    except OSError:
        sock.close()
        raise
    sock.settimeout(PATIENCE_SECONDS)
    return sock


def open_tcp(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def open_http(peer: WebSocketPeer, *lines: str, host: str = "127.0.0.1") -> tuple[int, str]:
    """Send the head of an HTTP request and give the status and the text of the answer."""
    head = "\r\n".join([lines[0], f"Host: {host}:{peer.sock.getpeername()[1]}", *lines[1:]])
    peer.sock.sendall(head.encode() + b"\r\n\r\n")
    received = peer.received
    while (at := received.find(b"\r\n\r\n")) < 0:
        peer.read_some()
    status_line, *headers = bytes(received[:at]).decode().split("\r\n")
    del received[: at + 4]
    lengths = [int(line.split(":")[1]) for line in headers if line.startswith("Content-Length:")]
    text = "" if lines[0].startswith("HEAD ") else peer._read(sum(lengths)).decode()
    return int(status_line.split()[1]), text


def upgrade_lines(*more: str) -> list[str]:
    """Return the head of a request that opens a WebSocket, with more headers."""
    return [*_REQUEST_LINES, f"Sec-WebSocket-Key: {random_key()}", *more]


def random_key() -> str:
    return base64.b64encode(os.urandom(16)).decode()


def encode_frame(opcode: int, data: bytes, *, fin: bool = True, reserved: int = 0) -> bytes:
    """Return a masked frame; a mask of zeros leaves the data as they are."""
    first = (0x80 if fin else 0) | (reserved << 4) | opcode
    if len(data) < 126:
        head = struct.pack("!BB", first, 0x80 | len(data))
    elif len(data) < 65_536:
        head = struct.pack("!BBH", first, 0xFE, len(data))
    else:
        head = struct.pack("!BBQ", first, 0xFF, len(data))
    return head + bytes(4) + data


def _answers(message: Json, request_id: Json) -> bool:
    return isinstance(message, dict) and "method" not in message and message.get("id") == request_id
