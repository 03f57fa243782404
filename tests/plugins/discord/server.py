"""A local server of Discord's HTTP API v10 and of its gateway, for the real discord.py."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from tests.plugins.discord.gateway import Gateway
from tests.plugins.discord.world import APPLICATION, BOT, ApiError, Fault, World, user_json

_encode = msgspec.json.encode


class Server(Gateway):
    """Serves a world."""

    @property
    def api_base(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/v10"

    def application(self) -> web.Application:
        application = web.Application(middlewares=[self._middleware])
        base = "/api/v10"
        add = application.router.add_route
        add("GET", "/gateway", self.gateway)
        add("GET", f"{base}/users/@me", self._me)
        add("GET", f"{base}/oauth2/applications/@me", self._about)
        add("GET", f"{base}/gateway/bot", self._gateway_bot)
        add("POST", f"{base}/channels/{{channel}}/messages", self._post)
        add("GET", f"{base}/channels/{{channel}}/messages", self._history)
        add("PATCH", f"{base}/channels/{{channel}}/messages/{{message}}", self._edit)
        add("POST", f"{base}/channels/{{channel}}/typing", self._typing)
        add("POST", f"{base}/interactions/{{press}}/{{token}}/callback", self._callback)
        return application

    @web.middleware
    async def _middleware(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        if request.path == "/gateway":
            return await handler(request)
        self.world.requests.append(f"{request.method} {request.path}")
        fault = self._fault(request)
        if fault is not None and not fault.is_after:
            return await self._fail(request, fault)
        try:
            token = request.headers.get("Authorization", "")
            is_press = "/interactions/" in request.path
            if not is_press and token != f"Bot {self.world.token}":
                raise ApiError(401, 0, "401: Unauthorized")
            response = await handler(request)
        except ApiError as refusal:
            response = _json(refusal.body, status=refusal.status, headers=refusal.headers)
        response.headers.update(
            {
                "X-RateLimit-Limit": "1000",
                "X-RateLimit-Remaining": "999",
                "X-RateLimit-Reset-After": "0.01",
                "X-RateLimit-Bucket": re.sub(r"\d+", "N", f"{request.method}{request.path}"),
            }
        )
        self.world.wake()
        if fault is not None:
            return await self._fail(request, fault)
        return response

    def _fault(self, request: web.Request) -> Fault | None:
        for fault in self.world.faults:
            if fault.method == request.method and re.search(fault.path, request.path):
                fault.times -= 1
                if fault.times <= 0:
                    self.world.faults.remove(fault)
                return fault
        return None

    async def _fail(self, request: web.Request, fault: Fault) -> web.StreamResponse:
        self.world.wake()
        if fault.hangs:
            await asyncio.Event().wait()
        if fault.is_half:
            half = web.StreamResponse()
            half.content_length = 1000
            half.content_type = "application/json"
            await half.prepare(request)
            await half.write(b'{"id": "1", "cont')
        if fault.status == 0 or fault.is_half:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if isinstance(fault.body, str):
            return web.Response(text=fault.body, status=fault.status, headers=fault.headers)
        return _json(fault.body or {}, status=fault.status, headers=fault.headers)

    async def _me(self, request: web.Request) -> web.Response:
        return _json(user_json(BOT))

    async def _about(self, request: web.Request) -> web.Response:
        return _json(
            {
                "id": str(APPLICATION),
                "name": "busd",
                "description": "",
                "icon": None,
                "bot_public": True,
                "bot_require_code_grant": False,
                "verify_key": "00",
                "flags": 0,
                "owner": user_json(1),
                "team": None,
            }
        )

    async def _gateway_bot(self, request: web.Request) -> web.Response:
        left = self.world.sessions_left
        limit = {"total": 1000, "remaining": left, "reset_after": 1000, "max_concurrency": 1}
        return _json({"url": self.gateway_url, "shards": 1, "session_start_limit": limit})

    async def _post(self, request: web.Request) -> web.Response:
        files, said = 0, {}
        if request.content_type.startswith("multipart/"):
            form = await request.post()
            said = msgspec.json.decode(str(form["payload_json"]))
            files = sum(name.startswith("files[") for name in form)
        else:
            said = await request.json()
        channel = int(request.match_info["channel"])
        return _json(self.world.post(channel, said, files))

    async def _edit(self, request: web.Request) -> web.Response:
        channel, message = int(request.match_info["channel"]), request.match_info["message"]
        return _json(self.world.edit(channel, message, await request.json()))

    async def _history(self, request: web.Request) -> web.Response:
        channel = int(request.match_info["channel"])
        return _json(self.world.history(channel, dict(request.query)))

    async def _typing(self, request: web.Request) -> web.Response:
        self.world.typing.append(self.world.find(int(request.match_info["channel"])).id)
        return web.Response(status=204)

    async def _callback(self, request: web.Request) -> web.Response:
        said: Any = await request.json()
        self.world.callbacks[request.match_info["press"]] = said
        return _json(
            {"interaction": {"id": request.match_info["press"], "type": 3}, "resource": {"type": 7}}
        )


def _json(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return an answer whose type says no charset, as Discord's."""
    sent = {"Content-Type": "application/json"} | dict(headers or {})
    return web.Response(body=_encode(body), status=status, headers=sent)


@asynccontextmanager
async def open_server(world: World) -> AsyncIterator[Server]:
    """Serve a world at a free port."""
    server = Server(world)
    runner = web.AppRunner(server.application(), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        server.drop(1001)
        await runner.cleanup()
