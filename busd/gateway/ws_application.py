"""The ASGI side of a WebSocket: runs the application for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import structlog
from uvicorn.protocols.utils import ClientDisconnected, get_local_addr, get_remote_addr

from busd.gateway.ws_framer import Binary

if TYPE_CHECKING:
    from busd.gateway.ws_connection import WebSocketConnection

log = structlog.get_logger("busd.gateway")

_NORMAL, _BAD_DATA, _FAILED = 1000, 1007, 1011
Event = dict[str, Any]


async def run_application(connection: WebSocketConnection) -> None:
    """Run the application until it returns; the WebSocket is closed then."""
    side = _AsgiSide(connection)
    scope = _make_scope(connection)
    try:
        await connection.config.loaded_app(scope, side.receive, side.send)
    except ClientDisconnected:
        pass
    except Exception:
        log.exception("connection.failed", path=scope["path"])
        connection.close(_FAILED)
    finally:
        connection.close(connection.close_code or _NORMAL)


class _AsgiSide:
    """`receive` and `send` of ASGI."""

    def __init__(self, connection: WebSocketConnection) -> None:
        self._connection = connection
        self._is_announced = False
        self._rejection: tuple[int, list[tuple[str, str]]] | None = None

    async def receive(self) -> Event:
        connection = self._connection
        if not self._is_announced:
            self._is_announced = True
            return {"type": "websocket.connect"}
        message = await connection.next_message()
        if isinstance(message, Binary):
            return {"type": "websocket.receive", "bytes": bytes(message)}
        if message is not None:
            try:
                return {"type": "websocket.receive", "text": message.decode()}
            except UnicodeDecodeError:
                connection.close(_BAD_DATA, "a text frame must be UTF-8")
        return {"type": "websocket.disconnect", "code": connection.close_code}

    async def send(self, event: Event) -> None:
        connection = self._connection
        if connection.is_lost:
            raise ClientDisconnected
        fields = [(str(n, "latin-1"), str(v, "latin-1")) for n, v in event.get("headers", ())]
        match event["type"]:
            case "websocket.accept":
                connection.accept(fields, event.get("subprotocol"))
            case "websocket.send":
                text = event.get("text")
                data = event["bytes"] if text is None else text.encode()
                await connection.send_when_writable(data, is_text=text is not None)
            case "websocket.close":
                connection.close(event.get("code", _NORMAL), event.get("reason") or "")
            case "websocket.http.response.start":
                self._rejection = event["status"], fields
            case "websocket.http.response.body" if self._rejection is not None:
                connection.reject(*self._rejection, event.get("body", b""))


def _make_scope(connection: WebSocketConnection) -> Event:
    request = connection.request
    path, _, query = request.path.partition("?")
    wanted = request.headers.get_all("Sec-WebSocket-Protocol")
    return {
        "type": "websocket",
        "asgi": {"version": connection.config.asgi_version, "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "ws",
        "server": get_local_addr(connection.transport),
        "client": get_remote_addr(connection.transport),
        "root_path": "",
        "path": unquote(path),
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "headers": [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in request.headers.raw_items()
        ],
        "subprotocols": [each.strip() for text in wanted for each in text.split(",")],
        "state": connection.state,
        "extensions": {"websocket.http.response": {}},
    }
