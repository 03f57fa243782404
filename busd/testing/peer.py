"""A scripted peer: does what the test requests, valid or not, and records what it receives."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
from msgspec import UNSET

from busd.rpc.envelope import Call, LooseEnvelope, Notification, decode_elements, decode_loose
from busd.testing.answers import Answer, Handed, ReceiptSeen
from busd.testing.transport import MemoryTransport, Soon
from busd.wire.connection import Connection
from busd.wire.interfaces import Framer
from busd.wire.lines import LineFramer
from busd.wire.websocket import ClientFramer

_MAX_FRAME_BYTES = 1024 * 1024 * 1024  # the limits of the bus are under test, not those of the peer
encode = msgspec.json.encode


class ScriptedPeer:
    """One peer, connected to a `MemoryBus`; created by its `join` and `connect`."""

    def __init__(
        self, name: str, connection: Connection, soon: Soon, *, web_socket: bool, chunk: int | None
    ) -> None:
        self.name = name
        self.inbox: deque[Handed] = deque()  # messages not taken by `next_message` yet
        self.answers: dict[int, Answer[Any]] = {}  # by request id
        self.frames: list[bytes] = []  # everything the bus sent, frame by frame
        self.has_end = False  # the bus has sent the end of the stream
        self.framer: Framer = LineFramer(_MAX_FRAME_BYTES)
        if web_socket:
            self.framer = ClientFramer("ws://localhost:7892/", _MAX_FRAME_BYTES)
        self._chunk = chunk
        self._out: list[bytes] = []
        self._may_send = True
        self.transport = MemoryTransport(connection, self, soon)

    def __repr__(self) -> str:
        return f"<peer {self.name}{'' if self.is_connected else ', gone'}>"

    @property
    def is_connected(self) -> bool:
        """True while neither side has ended the connection."""
        return self.transport.is_open and not self.has_end

    # Requests

    def initialize(
        self, client_id: str | None = None, info: object = None, extensions: object = None
    ) -> Answer[Any]:
        params = {"clientId": self.name if client_id is None else client_id}
        given = {"clientInfo": info, "extensions": extensions}
        return self.call(
            "initialize", params | {name: value for name, value in given.items() if value}
        )

    def subscribe(self, pattern: str) -> None:
        """Subscribe; raise CallRefused if the bus refuses."""
        self.call("subscribe", {"address": pattern}).check()

    def unsubscribe(self, pattern: str) -> None:
        """Unsubscribe; raise CallRefused if there is no such subscription."""
        self.call("unsubscribe", {"address": pattern}).check()

    def send(
        self,
        to: str,
        payload: object,
        *,
        sender: str | None = None,
        message_id: str | int | None = None,
        delivery: dict[str, object] | None = None,
        caused_by: str | None = None,
    ) -> Answer[ReceiptSeen]:
        """Send a message; a `msgspec.Raw` payload goes out byte for byte."""
        answer = self._expect("sendMessage", ReceiptSeen)
        params = _message(to, payload, sender, message_id, delivery, caused_by)
        self.send_frame(encode(Call(answer.request_id, "sendMessage", params)))
        return answer

    def notify(
        self,
        to: str,
        payload: object,
        *,
        sender: str | None = None,
        message_id: str | None = None,
        delivery: dict[str, object] | None = None,
        caused_by: str | None = None,
    ) -> None:
        """Send a message as a notification, which has no answer."""
        params = _message(to, payload, sender, message_id, delivery, caused_by)
        self.send_frame(encode(Notification("sendMessage", params)))

    def call(self, method: str, params: object) -> Answer[Any]:
        """Call any method of the bus."""
        answer: Answer[Any] = self._expect(method, object)
        self.send_frame(encode(Call(answer.request_id, method, params)))
        return answer

    def batch(self, *calls: tuple[str, object]) -> list[Answer[Any]]:
        """Call several methods in one frame."""
        answers: list[Answer[Any]] = [self._expect(method, object) for method, _ in calls]
        frame = [
            Call(answer.request_id, answer.method, params)
            for answer, (_, params) in zip(answers, calls, strict=True)
        ]
        self.send_frame(encode(frame))
        return answers

    def _expect(self, method: str, shape: type[Any]) -> Answer[Any]:
        answer: Answer[Any] = Answer(len(self.answers) + 1, method, shape)
        self.answers[answer.request_id] = answer
        return answer

    # Messages

    def next_message(self) -> Handed:
        """Remove and return the next message that this peer has received."""
        assert self.inbox, f"{self.name} was handed no message"
        return self.inbox.popleft()

    # Bytes out

    def send_frame(self, frame: bytes) -> None:
        """Send one frame, valid or not."""
        self._out.append(frame)
        self._flush()

    def _flush(self) -> None:
        for data in self.framer.encode(self._out):
            self.feed(data)

    def feed(self, data: bytes) -> None:
        """Send any bytes; after `half_close` or the end they are discarded."""
        if self._may_send and self.transport.is_open:
            size = self._chunk or max(len(data), 1)
            for start in range(0, len(data), size):
                self.transport.feed(data[start : start + size])

    # Bytes in

    def stop_reading(self) -> None:
        """Stop reading what the bus sends."""
        self.transport.read(is_wanted=False)

    def read_on(self) -> None:
        """Read everything that is pending, and continue to read."""
        self.transport.read(is_wanted=True)

    def on_bytes(self, data: bytes) -> None:
        for frame in self.framer.feed(data):
            if frame is not None:
                self.frames.append(frame)
                self._take(frame)
        if self.framer.wants_flush:
            self._flush()

    def _take(self, frame: bytes) -> None:
        if frame[:1] == b"[":
            for element in decode_elements(frame):
                self._take_one(decode_loose(element))
        elif frame[:1] == b"{":  # else it is a line of an HTTP answer
            self._take_one(decode_loose(frame))

    def _take_one(self, envelope: LooseEnvelope) -> None:
        if envelope.method == "processMessage":
            assert isinstance(envelope.id, int)
            assert envelope.params is not UNSET
            self.inbox.append(Handed(self, envelope.id, envelope.params))
        elif isinstance(envelope.id, int) and envelope.id in self.answers:
            self.answers[envelope.id].replies.append(envelope)

    # Closing

    def half_close(self) -> None:
        """Send the end of the stream, and continue to read."""
        self._may_send = False
        self.transport.feed_eof()

    def leave(self) -> None:
        """Disconnect abruptly, like a process that is killed."""
        self.transport.lose()

    def on_end(self) -> None:
        self.has_end = True


def _message(
    to: str,
    payload: object,
    sender: str | None,
    message_id: str | int | None,
    delivery: dict[str, object] | None,
    caused_by: str | None,
) -> dict[str, object]:
    given: dict[str, object] = {"from": sender, "to": to, "messageId": message_id}
    given |= {"delivery": delivery, "causedBy": caused_by}
    return {name: value for name, value in given.items() if value is not None} | {
        "payload": payload
    }
