"""The pump between a WebSocket and a dialect."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
from starlette.responses import PlainTextResponse

from busd.errors import QuotaExceeded
from busd.gateway.client import Client
from busd.gateway.clients import Clients
from busd.gateway.dialect import Dialect
from busd.gateway.effects import Close, Send
from busd.gateway.hub import Output
from busd.gateway.identity import Denied, Identity, read_query
from busd.gateway.limits import STRANGER_FRAME_BYTES, STRANGER_UNSENT_BYTES
from busd.gateway.origins import base_url
from busd.gateway.places import Place
from busd.gateway.ws_connection import TOO_LARGE, WebSocketConnection

_encode = msgspec.json.Encoder().encode
_MAX_ROOM_CHARACTERS = 200
# A frame that is too large is refused, and the connection lives on; but not at any size.
_HARD_LIMIT = 2


class WebSocketPump:
    """An ASGI application: runs a dialect for each WebSocket at its path."""

    def __init__(self, clients: Clients, dialect: type[Dialect]) -> None:
        self._clients = clients
        self._dialect = dialect

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        clients, headers = self._clients, scope["headers"]
        connection: WebSocketConnection = scope["state"]["connection"]
        try:
            clients.check_open()
            room = _room_of(scope)
            query = read_query(scope["query_string"])
            remote = scope["state"]["remote"]
            identity = clients.identities.of_request(headers, query, remote)
            line = WebSocketLine(clients, connection, self._dialect, identity)
        except Denied as denied:
            await PlainTextResponse(denied.text, denied.status)(scope, receive, send)
            return
        except QuotaExceeded as full:
            await PlainTextResponse(f"{full.message}\n", 503)(scope, receive, send)
            return
        hello = clients.make_hello(
            identity, base=base_url(headers), query=query, path=scope["path"], room=room
        )
        try:
            await receive()  # that a client connects
            await send({"type": "websocket.accept"})
            await _pump(Client(clients, line, self._dialect, hello, identity), receive)
        finally:
            line.leave()


async def _pump(client: Client, receive: Any) -> None:
    """Pass the frames of a client to its dialect until the connection is closed."""
    try:
        event = await _first_event(client.first_frame_seconds, receive)
        goes_on = event is None or await _take(client, event)
        if goes_on:
            await client.open()
        while goes_on:
            goes_on = await _take(client, await receive())
    finally:
        await client.end()


async def _first_event(seconds: float, receive: Any) -> Any:
    """Return what comes within a time; None: nothing has."""
    if seconds:
        with anyio.move_on_after(seconds):
            return await receive()
    return None


async def _take(client: Client, event: Any) -> bool:
    """Pass on what came; return whether more may come."""
    if event["type"] != "websocket.receive":
        if event["code"] == TOO_LARGE:
            client.refuse("limit", "a frame that is far too large")
        return False
    text = event.get("text")
    if text is None:
        await client.decline("invalid", "a binary frame; only text is read")
    else:
        await client.take(text, len(text) if text.isascii() else len(text.encode()))
    return True


def _room_of(scope: Any) -> str:
    room = scope["path_params"].get("room", "")
    if len(room) > _MAX_ROOM_CHARACTERS or not room.isprintable() or "\ufffd" in room:
        raise Denied(404, "This is no name of a room.\n")
    return str(room)


class WebSocketLine:
    """What carries the frames of one client."""

    def __init__(
        self,
        clients: Clients,
        connection: WebSocketConnection,
        dialect: type[Dialect],
        identity: Identity,
    ) -> None:
        self._clients = clients
        self._connection = connection
        self._max_frame_bytes = _HARD_LIMIT * dialect.max_frame_bytes
        self._place: Place = clients.places.take(identity.user, connection)
        if identity.user:
            self._allow()
        else:
            budget = self._place.budget
            connection.admit(STRANGER_FRAME_BYTES, STRANGER_UNSENT_BYTES, budget)
        clients.watch(connection)

    def admit(self, identity: Identity) -> None:
        self._place.become(identity.user)
        self._allow()

    def _allow(self) -> None:
        limits = self._clients.table.limits
        self._connection.admit(self._max_frame_bytes, limits.unsent_bytes, self._place.budget)

    def send(self, output: Output) -> None:
        match output:
            case Send(str(text)):
                self._connection.send_text(text.encode())
            case Send(frame):
                self._connection.send_text(_encode(frame))
            case Close(reason, code):
                self._connection.close(code, reason)
            case _:
                raise TypeError(f"a WebSocket has no {type(output).__name__}")

    def close(self, code: int, reason: str) -> None:
        self._connection.close(code, reason)

    def leave(self) -> None:
        self._clients.forget(self._connection)
        self._place.leave()
