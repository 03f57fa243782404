"""Dialects for the tests of the host: they do what their client says."""

from __future__ import annotations

from typing import Any

import msgspec

from busd.gateway import (
    Acknowledge,
    Authenticate,
    Close,
    Dialect,
    Done,
    Effects,
    Emit,
    Event,
    Frame,
    Refused,
    Send,
    SocketFrame,
)


class Echo(Dialect):
    """Sends back what it gets; `{"do": …}` asks for something else."""

    prefix = "echo"
    max_frame_bytes = 256 * 1024

    def open(self) -> Effects:
        yield Send({"user": self.hello.user, "query": self.hello.query, "room": self.hello.room})

    def receive(self, frame: Frame) -> Effects:
        text = str(frame)
        if not text.startswith('{"do"'):
            yield Send(text)
            return
        wish = msgspec.json.decode(text)
        match wish["do"]:
            case "authenticate":
                yield Authenticate(wish["token"])
            case "close":
                yield Close(wish.get("reason", ""), wish.get("code", 1000))
            case "send":
                for _ in range(wish["times"]):
                    yield Send("x" * wish["size"])
            case "sign":
                yield Send(self.hello.sign(wish["url"]))
            case "fail":
                raise RuntimeError("the dialect has failed")

    def show(self, event: Event) -> Effects:
        if isinstance(event, Done) and isinstance(event.request, Authenticate):
            yield Send({"authenticated": event.detail})
        elif isinstance(event, Refused):
            yield Send({"refused": event.rule})

    def refuse(self, rule: str, reason: str) -> Effects:
        yield Send({"refused": rule, "reason": reason})


class Room(Echo):
    """The same in rooms."""

    prefix = "room"


class Patient(Echo):
    """The same, but `open` waits for the first frame."""

    prefix = "patient"
    first_frame_seconds = 3600.0


class Brief(Echo):
    """The same, but nobody can be so quick."""

    prefix = "brief"
    first_frame_seconds = 1e-6


class Bell(Dialect):
    """Answers events of Socket.IO."""

    prefix = "bell"
    namespaces = ("/", "/side")
    max_frame_bytes = 256 * 1024

    def open(self) -> Effects:
        yield Emit("welcome", {"user": self.hello.user, "query": self.hello.query})

    def receive(self, frame: Frame) -> Effects:
        assert isinstance(frame, SocketFrame)
        data: Any = frame.data
        match frame.event:
            case "ring":
                yield Emit("rang", data)
            case "elsewhere":
                yield Emit("rang", data, "/side")
            case "flood":
                for _ in range(data["times"]):
                    yield Emit("noise", "x" * data["size"])
            case "authenticate":
                yield Authenticate(data)
            case "close":
                yield Close("as you wish", data or 1000)
            case "facts":
                yield Emit("facts", {"wants_ack": frame.wants_ack, "data": data})
        if frame.wants_ack and frame.event != "silent":
            yield Acknowledge(frame, {"got": data})

    def show(self, event: Event) -> Effects:
        if isinstance(event, Done) and isinstance(event.request, Authenticate):
            yield Emit("authenticated", event.detail)
        elif isinstance(event, Refused):
            yield Emit("refused", event.rule)

    def refuse(self, rule: str, reason: str) -> Effects:
        yield Emit("refused", {"rule": rule, "reason": reason})
