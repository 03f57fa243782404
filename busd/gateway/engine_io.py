"""Engine.IO 4 as an ASGI application: long polling, WebSocket, and the change to the latter.

Errors have the form that clients of Engine.IO know: `{"code": 1, "message": "Session ID unknown"}`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import anyio
import msgspec
from starlette.responses import JSONResponse, PlainTextResponse, Response

from busd.errors import QuotaExceeded
from busd.gateway.clients import Clients
from busd.gateway.engine_session import NOOP, PING_TIMEOUT_SECONDS, SEPARATOR, EngineSession, State
from busd.gateway.http_connection import HttpConnection
from busd.gateway.identity import Denied, Identity, read_query
from busd.gateway.limits import STRANGER_FRAME_BYTES, STRANGER_UNSENT_BYTES, Slots
from busd.gateway.origins import Headers
from busd.gateway.ws_connection import WebSocketConnection

_TEXT = "text/plain; charset=UTF-8"
_OWN_MEMBERS = ("EIO", "transport", "sid", "t", "b64")  # of the query
_UNKNOWN_SID = "Session ID unknown"
_PROBE_SECONDS = 10.0
_HARD_LIMIT = 2  # times the size of a frame; above that, a request is not read
_SIGNS = ("2", "3", "5", "6")  # packets that carry nothing: ping, pong, upgrade, noop


class Fault(Exception):
    """What is wrong with a request, by the number that clients of Engine.IO know."""

    def __init__(self, code: int, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


class Opening(msgspec.Struct):
    """The first request of a session."""

    path: str
    headers: Headers
    query: dict[str, str]
    identity: Identity


class Receiver(Protocol):
    """What a session is for."""

    async def receive(self, message: str) -> None:
        """Process a message; return when the next one may come."""

    async def decline(self, rule: str, reason: str) -> None:
        """Refuse what is no message; return when the next one may come."""

    def lost(self) -> None:
        """End what the session was for. May be repeated."""


class EngineIo:
    """An ASGI application: the sessions of one dialect."""

    def __init__(
        self,
        clients: Clients,
        max_frame_bytes: int,
        make_receiver: Callable[[EngineSession, Opening], Receiver],
    ) -> None:
        self._clients = clients
        self._max_frame_bytes = max_frame_bytes
        self._make_receiver = make_receiver
        self._sessions: dict[str, EngineSession] = {}
        self._receivers: dict[str, Receiver] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            if scope["type"] == "websocket":
                await self._serve_web_socket(scope, receive, send)
                return
            response = await self._answer(scope, receive)
        except Denied as denied:
            response = PlainTextResponse(denied.text, denied.status)
        except QuotaExceeded as full:
            response = PlainTextResponse(f"{full.message}\n", 503)
        except Fault as fault:
            content = {"code": fault.code, "message": fault.message}
            response = JSONResponse(content, fault.status)
        await response(scope, receive, send)

    # Sessions

    def _open(self, scope: Any, query: dict[str, str], identity: Identity) -> EngineSession:
        """Return a new session."""
        if query.get("EIO") != "4":
            raise Fault(5, "Unsupported protocol version")
        self._clients.check_open()
        session = EngineSession(
            secrets.token_urlsafe(15),
            identity,
            self._clients.table.limits.ping_seconds,
            self._ended,
        )
        session.place = self._clients.places.take(identity.user, session)
        self.allow(session)
        self._clients.watch(session)
        self._clients.expect(session)
        own = {name: value for name, value in query.items() if name not in _OWN_MEMBERS}
        opening = Opening(scope["path"], scope["headers"], own, identity)
        self._sessions[session.sid] = session
        self._receivers[session.sid] = self._make_receiver(session, opening)
        return session

    def allow(self, session: EngineSession) -> None:
        """Set the limits of a session: those of its user, or of a stranger."""
        assert session.place is not None
        budget = session.place.budget
        if session.place.user:
            unsent_bytes = self._clients.table.limits.unsent_bytes
            session.admit(_HARD_LIMIT * self._max_frame_bytes, unsent_bytes, budget)
        else:
            session.admit(STRANGER_FRAME_BYTES, STRANGER_UNSENT_BYTES, budget)

    def _find(self, sid: str, identity: Identity) -> EngineSession:
        session = self._sessions.get(sid)
        if session is None:
            raise Fault(1, _UNKNOWN_SID)
        if not identity.may_continue(session.identity):
            raise Fault(4, "Forbidden", 403)
        return session

    def _ended(self, session: EngineSession) -> None:
        """Let go of a session that is LEAVING or CLOSED."""
        if (receiver := self._receivers.pop(session.sid, None)) is not None:
            receiver.lost()
        self._clients.settle(session)
        if session.state is State.CLOSED:
            self._sessions.pop(session.sid, None)
            self._clients.forget(session)
            if session.place is not None:
                session.place.leave()

    def _hello_packet(self, session: EngineSession, upgrades: list[str]) -> bytes:
        hello = {
            "sid": session.sid,
            "upgrades": upgrades,
            "pingInterval": int(self._clients.table.limits.ping_seconds * 1000),
            "pingTimeout": int(PING_TIMEOUT_SECONDS * 1000),
            "maxPayload": self._max_frame_bytes,
        }
        return b"0" + msgspec.json.encode(hello)

    async def _take(self, session: EngineSession, packet: str) -> None:
        """Process one packet of a client."""
        receiver = self._receivers.get(session.sid)
        if receiver is None:
            return  # it was closed meanwhile
        kind, content = packet[:1], packet[1:]
        if kind == "4":
            await receiver.receive(content)
        elif kind == "1":
            session.end()
        elif kind in _SIGNS:
            await session.pause(session.signs.charge(1))
            if kind == "2":
                session.send(b"3" + content[:128].encode())
        else:
            what = "a binary packet; only text is read" if kind == "b" else "not a packet"
            await receiver.decline("invalid", what)

    # Polling

    async def _answer(self, scope: Any, receive: Any) -> Response:
        """Answer a request of a client that polls."""
        state = scope["state"]
        query = read_query(scope["query_string"])
        identity = self._clients.identities.of_request(scope["headers"], query, state["remote"])
        if query.get("transport") != "polling":
            raise Fault(0, "Transport unknown")
        sid, method = query.get("sid"), scope["method"]
        if sid is None and method == "GET":
            session = self._open(scope, query, identity)
            session.send(self._hello_packet(session, ["websocket"]))
            return Response(session.take_output(), media_type=_TEXT)
        if sid is None or method not in ("GET", "POST"):
            raise Fault(2, "Bad handshake method")
        session = self._find(sid, identity)
        if session.state is State.STREAMING:
            raise Fault(3, "Bad request")
        with _taken(session.request_slots):
            await session.pause(session.requests.charge(1))
            session.heard()
            if method == "POST":
                return await self._post(session, receive)
            return await self._poll(session, state["connection"])

    async def _poll(self, session: EngineSession, connection: HttpConnection) -> Response:
        connection.on_lost = session.wake
        try:
            is_last = await session.await_output()
        finally:
            connection.on_lost = None
        # What is taken for a connection that is lost would be lost, too.
        has_reader = is_last and not connection.is_lost
        payload = session.take_output() if has_reader else NOOP
        if payload is None:
            raise Fault(1, _UNKNOWN_SID)
        if session.place is not None and not connection.hold(len(payload), session.place.budget):
            session.end()  # all that is sent to this user is not read
            raise Fault(1, _UNKNOWN_SID)
        return Response(payload, media_type=_TEXT)

    async def _post(self, session: EngineSession, receive: Any) -> Response:
        if session.is_working:
            raise Fault(3, "Bad request: one at a time")
        session.is_working = True
        try:
            body = await _read_body(session, receive)
            for packet in _packets_of(body):
                if not session.is_open:
                    break
                await self._take(session, packet.decode())
        except UnicodeDecodeError:
            raise Fault(3, "Bad request: not UTF-8") from None
        finally:
            session.is_working = False
            session.input.hold(0)
        return Response(b"ok", media_type=_TEXT)

    # WebSocket

    async def _serve_web_socket(self, scope: Any, receive: Any, send: Any) -> None:
        state = scope["state"]
        query = read_query(scope["query_string"])
        identity = self._clients.identities.of_request(scope["headers"], query, state["remote"])
        if query.get("transport") != "websocket":
            raise Fault(0, "Transport unknown")
        stream, sid = state["connection"], query.get("sid")
        session = self._open(scope, query, identity) if sid is None else self._find(sid, identity)
        is_new = sid is None
        if not is_new and session.state is not State.POLLING:
            raise Fault(3, "Bad request")
        with _taken(session.probe_slots):
            try:
                await receive()  # that a client connects
                await send({"type": "websocket.accept"})
                if is_new:
                    session.start_stream(stream, self._hello_packet(session, []))
                elif not await _upgrade(session, stream, receive):
                    return
                await self._stream(session, receive)
            finally:
                if is_new or session.state is State.STREAMING:
                    session.end()
                session.end_probe()

    async def _stream(self, session: EngineSession, receive: Any) -> None:
        """Process what comes over a WebSocket until it is closed."""
        while (event := await receive())["type"] == "websocket.receive":
            session.heard()
            session.is_working = True
            try:
                text = event.get("text")
                await self._take(session, "b" if text is None else text)
            finally:
                session.is_working = False


@contextmanager
def _taken(slots: Slots) -> Iterator[None]:
    """Occupy a slot for the block; raise Fault if there is none."""
    if not slots.take():
        raise Fault(3, "Bad request: too many of this session at a time")
    try:
        yield
    finally:
        slots.free()


async def _upgrade(session: EngineSession, stream: WebSocketConnection, receive: Any) -> bool:
    """Let a WebSocket replace polling; return False if the client does not go through with it."""
    with anyio.move_on_after(_PROBE_SECONDS):
        if (await receive()).get("text") == "2probe" and session.probe(stream):
            return (await receive()).get("text") == "5" and session.start_stream(stream)
    return False


def _packets_of(body: bytes) -> Iterator[bytes]:
    """Return the packets of a body, one by one: there can be millions of empty ones."""
    at = 0
    while (end := body.find(SEPARATOR, at)) >= 0:
        yield body[at:end]
        at = end + 1
    yield body[at:]


async def _read_body(session: EngineSession, receive: Any) -> bytes:
    """Return the body of a request; raise Fault if there is none, or if it is too large."""
    body = bytearray()
    while True:
        event = await receive()
        if event["type"] != "http.request":
            raise Fault(3, "Bad request")
        body += event.get("body", b"")
        if len(body) > session.max_payload_bytes or not session.input.hold(len(body)):
            raise Fault(3, f"more than {session.max_payload_bytes} bytes", 413)
        if not event.get("more_body"):
            return bytes(body)
