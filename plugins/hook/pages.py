"""The HTTP side: requests are read, checked and answered.

| request | answer |
| --- | --- |
| `POST /hook/NAME` | 200 with the reply, or 202 with the id of the message |
| `GET /hook/NAME/ID` | the same, of an earlier message |
| `GET /hook/openapi.json` | the description of these |
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from busd import Bridge
from busd.bridge import Pace
from busd_plugins.hook.bodies import read_body
from busd_plugins.hook.callbacks import POST_SECONDS, Callbacks
from busd_plugins.hook.callers import Caller, Callers
from busd_plugins.hook.destinations import BadDestination, Unresolved
from busd_plugins.hook.errors import HookError
from busd_plugins.hook.exchange import Exchange
from busd_plugins.hook.messages import Outcome, Posted, read_posted
from busd_plugins.hook.openapi import describe
from busd_plugins.hook.places import Places
from busd_plugins.hook.store import Request as Kept
from busd_plugins.hook.store import Store

if TYPE_CHECKING:
    from busd.gateway import Site
    from busd_plugins.hook.settings import HookTable

log = logging.getLogger("busd.bridge")

FOLDER = "bridges/hook"  # within the state folder of the bus
# Replies are kept as they come; only callbacks take time, and these have limits of their own.
_PACE = Pace(parallel=1_000, post_seconds=POST_SECONDS + 15, stop_seconds=1.0)
_MAX_KEY_CHARACTERS = 255
_LOOK_SECONDS = 0.5
_HEADERS = {"Cache-Control": "no-store"}


@asynccontextmanager
async def open_hooks(table: HookTable, site: Site) -> AsyncIterator[list[Route]]:
    """Open the webhook bridge and yield its routes; raise ConfigError."""
    callers = Callers(table.secrets, table.tokens, table.window_seconds)
    bridge = Bridge(table.name, "hook", state=site.state / FOLDER, pace=_PACE)
    callbacks = Callbacks(
        callers, seconds=table.callback_seconds, allow_private=table.allow_private_callbacks
    )
    bridge.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with closing(Store(bridge.state / "hook.db")) as store:
        exchange = Exchange(bridge, store, callbacks)
        pages = Pages(table, callers, exchange, callbacks)
        async with bridge, anyio.create_task_group() as tasks:
            bridge.report("connected")
            tasks.start_soon(_release_at_stop, site, exchange)
            yield pages.routes()
            tasks.cancel_scope.cancel()


async def _release_at_stop(site: Site, exchange: Exchange) -> None:
    while not site.is_stopping():
        await anyio.sleep(_LOOK_SECONDS)
    exchange.release()


class Pages:
    """The requests of callers."""

    def __init__(
        self, table: HookTable, callers: Callers, exchange: Exchange, callbacks: Callbacks
    ) -> None:
        self._table = table
        self._callers = callers
        self._exchange = exchange
        self._callbacks = callbacks
        self._places = Places()

    def routes(self) -> list[Route]:
        path = self._table.path
        return [
            Route(f"{path}/openapi.json", self.describe),
            Route(f"{path}/{{name}}", _answering(self.post), methods=["POST"]),
            Route(f"{path}/{{name}}/{{id}}", _answering(self.get), methods=["GET"]),
        ]

    async def describe(self, request: Request) -> Response:
        return _json(200, msgspec.json.encode(describe(self._table)))

    async def post(self, request: Request) -> Response:
        """Take a message; wait for the answer if that is wished."""
        caller = self._callers.find(request.path_params["name"])
        seconds = self._seconds_of(request)
        signed_id = self._callers.check_head(caller, request.headers)
        body = b""
        if signed_id:
            body = await read_body(request, self._table.max_body_bytes, self._places.unproved)
            self._callers.check_body(caller, request.headers, signed_id, body)
        with self._places.take(caller.name):
            if not signed_id:
                body = await read_body(request, self._table.max_body_bytes, self._places.proved)
            kept = await self._take(request, caller, signed_id, body, seconds)
            del body  # nothing of it is held while the caller waits
            return await self._respond(request, kept, seconds)

    async def _take(
        self, request: Request, caller: Caller, signed_id: str, body: bytes, seconds: float
    ) -> Kept:
        key = _key_of(request, signed_id)
        chat_id = request.query_params.get("chat_id", "")
        posted = read_posted(request.headers.get("content-type", ""), body, chat_id)
        await self._check(posted, seconds)
        return await self._exchange.accept(caller, posted, key, body + f"\n{chat_id}".encode())

    async def get(self, request: Request) -> Response:
        """Return what has become of a message."""
        caller = self._callers.find(request.path_params["name"])
        request_id = request.path_params["id"]
        signed_id = self._callers.check_head(caller, request.headers)
        if signed_id and signed_id != request_id:
            words = "to read an answer, sign its id as webhook-id, with an empty body"
            raise HookError(401, "bad_signature", words)
        self._callers.check_body(caller, request.headers, signed_id, b"")
        with self._places.take(caller.name):
            seconds = self._seconds_of(request)
            kept = await self._exchange.find(caller, request_id)
            return await self._respond(request, kept, seconds)

    async def _respond(self, request: Request, kept: Kept, seconds: float) -> Response:
        outcome: Outcome | None = None
        problem: HookError | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when_gone, request, tasks.cancel_scope)
            try:
                outcome = await self._exchange.wait(kept, seconds)
            except HookError as refusal:
                problem = refusal  # raised as it is, not in an exception group
            tasks.cancel_scope.cancel()
        if problem is not None:
            raise problem
        if outcome is None:
            return Response(status_code=499)  # nobody reads it
        where = f"{self._table.path}/{kept.hook}/{outcome.id}"
        status = 202 if outcome.state == "waiting" else 200
        headers = {"Location": where, "Retry-After": "1"} if status == 202 else {}
        return _json(status, msgspec.json.encode(outcome), headers)

    async def _check(self, posted: Posted, seconds: float) -> None:
        if not posted.text and not posted.attachments:
            raise HookError(400, "bad_request", "the message has no text")
        if not posted.callback_url:
            return
        if seconds:
            raise HookError(400, "bad_request", "choose one: `wait` or `callback_url`")
        try:
            await self._callbacks.check(posted.callback_url)
        except (BadDestination, Unresolved) as problem:
            raise HookError(400, "bad_callback_url", f"callback_url: {problem}") from None

    def _seconds_of(self, request: Request) -> float:
        """Return how long a caller wishes to wait; raise HookError."""
        said = request.query_params.get("wait", "0")
        try:
            seconds = float(said) if len(said) < 20 else -1.0
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < 1e9:
            raise HookError(400, "bad_request", f"wait: {said[:20]!r} is no number of seconds")
        return min(seconds, self._table.wait_seconds)


async def _cancel_when_gone(request: Request, scope: anyio.CancelScope) -> None:
    """Cancel a wait for somebody who has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _key_of(request: Request, signed_id: str) -> str:
    """Return the idempotency key; raise HookError. That of a signed request is signed, too."""
    key = request.headers.get("idempotency-key", "")
    if len(key) > _MAX_KEY_CHARACTERS:
        words = f"Idempotency-Key has more than {_MAX_KEY_CHARACTERS} characters"
        raise HookError(400, "bad_request", words)
    if signed_id and key and key != signed_id:
        words = "webhook-id is the idempotency key of a signed request; leave out Idempotency-Key"
        raise HookError(400, "bad_request", words)
    return signed_id or key


def _answering(
    function: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return a function that answers what `function` refuses."""

    async def answer(request: Request) -> Response:
        try:
            return await function(request)
        except HookError as refusal:
            log.info("a request to %s is refused: %s", request.url.path[:80], refusal.fault.code)
            return refusal_of(refusal)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it

    return answer


def refusal_of(refusal: HookError) -> Response:
    headers: dict[str, Any] = {}
    if refusal.retry_seconds:
        headers["Retry-After"] = str(refusal.retry_seconds)
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return _json(refusal.status, refusal.body, headers)


def _json(status: int, body: bytes, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, {**_HEADERS, **(headers or {})}, "application/json")
