"""The application of the gateway: which path is whose.

Beside the dialects there are `/healthz`, `/status` and links to files. Other things can be mounted,
see `extra_routes`; `identity_of` returns who sends a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from busd import __version__
from busd.gateway.clients import Clients
from busd.gateway.identity import Denied, Identities, Identity, read_query
from busd.gateway.links import LINKS_PATH, BadTicket, Expired
from busd.gateway.loading import Route as DialectRoute
from busd.gateway.origins import Origins, has_two_lengths, values_of
from busd.gateway.socket_io import SocketIo
from busd.gateway.web_socket import WebSocketPump

_IDENTITIES = "identities"  # key of `scope["state"]`
_PRIVATE = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, HEAD, POST, OPTIONS",
    "Access-Control-Allow-Headers": "authorization, content-type",
    "Access-Control-Allow-Private-Network": "true",
    "Access-Control-Max-Age": "600",
}


def make_app(
    clients: Clients, routes: Iterable[DialectRoute], extra_routes: Sequence[BaseRoute] = ()
) -> Any:
    """Return the ASGI application that serves these dialects, and what else is to be mounted."""
    pages = Pages(clients)
    own = [
        Route("/healthz", pages.health),
        Route("/status", pages.status),
        Route(f"{LINKS_PATH}/{{ticket}}", pages.file),
    ]
    app = Starlette(routes=[*own, *_dialect_routes(clients, routes), *extra_routes])
    app.router.default = pages.nowhere
    return Gate(app, clients)


def _dialect_routes(clients: Clients, routes: Iterable[DialectRoute]) -> Iterator[BaseRoute]:
    """Return the routes of dialects, with and without a slash at the end."""
    for route in routes:
        has_namespaces = bool(route.dialect.namespaces)
        app: Any = (SocketIo if has_namespaces else WebSocketPump)(clients, route.dialect)
        path = route.path.rstrip("/")
        for each in dict.fromkeys([path or "/", f"{path}/"]):
            yield WebSocketRoute(each, app)
            if has_namespaces:
                yield Route(each, app)


def identity_of(request: HTTPConnection) -> Identity:
    """Return who sends a request; raise Denied."""
    identities: Identities = request.scope["state"][_IDENTITIES]
    query = read_query(request.scope["query_string"])
    return identities.of_request(request.scope["headers"], query, request.scope["state"]["remote"])


class Gate:
    """The application behind the checks that every request passes."""

    def __init__(self, app: Any, clients: Clients) -> None:
        self._app = app
        self._identities = clients.identities
        self._origins = Origins(clients.table.allowed_origins, clients.table.allowed_hosts)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = scope["headers"]
        if has_two_lengths(headers):
            text = "Content-Length and Transfer-Encoding in one request.\n"
            await PlainTextResponse(text, 400, {"Connection": "close"})(scope, receive, send)
            return
        if fault := self._origins.fault_of(headers):
            await PlainTextResponse(f"{fault}\n", 403)(scope, receive, send)
            return
        scope["state"][_IDENTITIES] = self._identities
        origins = values_of(headers, b"origin")
        if not origins or scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS":
            response = Response(status_code=204, headers=_PREFLIGHT)
            await response(scope, receive, _allowing(origins[0], send))
        else:
            await self._app(scope, receive, _allowing(origins[0], send))


def _allowing(origin: str, send: Any) -> Any:
    """Return `send` with the headers by which the page may read the answer."""
    fields = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-credentials", b"true"),
        (b"vary", b"Origin"),
    ]

    async def send_allowing(event: Any) -> None:
        if event["type"] == "http.response.start":
            event = {**event, "headers": [*event["headers"], *fields]}
        await send(event)

    return send_allowing


class Pages:
    """What the gateway serves besides the dialects."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    async def health(self, request: Request) -> Response:
        is_stopping = self._clients.is_draining
        return PlainTextResponse(
            "stopping\n" if is_stopping else "ok\n", 503 if is_stopping else 200
        )

    async def status(self, request: Request) -> Response:
        """Return what the gateway does just now; only its owner may know."""
        try:
            if not identity_of(request).is_owner:
                raise Denied(403, "Only the owner of this gateway may see its status.\n")
        except Denied as denied:
            return PlainTextResponse(denied.text, denied.status)
        content = {
            "version": __version__,
            "is_stopping": self._clients.is_draining,
            **self._clients.describe(),
            "hub": await self._clients.hub.counted(),
        }
        return Response(msgspec.json.encode(content), media_type="application/json")

    async def file(self, request: Request) -> Response:
        """Redirect to the file of a link."""
        try:
            url = self._clients.links.open(request.path_params["ticket"])
        except BadTicket:
            return PlainTextResponse("This link is not one of ours.\n", 403, _PRIVATE)
        except Expired:
            return PlainTextResponse("This link has expired; ask for a new one.\n", 410, _PRIVATE)
        return RedirectResponse(url, 307, _PRIVATE)

    async def nowhere(self, scope: Any, receive: Any, send: Any) -> None:
        text = f"There is nothing at {scope['path'][:200]!r}.\n"
        await PlainTextResponse(text, 404)(scope, receive, send)
