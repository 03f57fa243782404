"""Reloads: run one at a time, however many ask, and tell each of them what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import msgspec
import structlog

from busd.errors import Busy, InternalError
from busd.plugin.host import PluginChange
from busd.rpc.endpoint import Asker
from busd.rpc.envelope import RequestId

log = structlog.get_logger("busd.ops")

_MAX_WAITING = 64


class RefusedPlugin(msgspec.Struct):
    """A plugin whose files cannot be used."""

    name: str
    origin: str
    reason: str


class Reloaded(msgspec.Struct, rename="camel"):
    """The result of a reload; `refused` is the reason if it changed nothing."""

    refused: str = ""
    changed: list[str] = []
    need_restart: list[str] = []
    warnings: list[str] = []
    plugins: list[RefusedPlugin] = []
    plugin_changes: dict[str, PluginChange] = {}


class Reloads:
    """The reloads of one daemon. Requests that arrive during a reload share the next one."""

    def __init__(self, reload: Callable[[], Awaitable[Reloaded]]) -> None:
        self._reload = reload
        self._waiting: list[tuple[Asker, RequestId]] = []
        self._wanted = anyio.Event()
        self._is_closed = False

    def request(self) -> None:
        """Request a reload without waiting for its outcome."""
        self._wanted.set()

    def put(self, asker: Asker, request_id: RequestId) -> None:
        """Request a reload, whose outcome is sent to the asker; raise Busy."""
        if self._is_closed:
            raise Busy("the bus is stopping", retrySeconds=1)
        if len(self._waiting) >= _MAX_WAITING:
            raise Busy("too many reloads at once", retrySeconds=1)
        self._waiting.append((asker, request_id))
        self.request()

    async def serve(self, flush: Callable[[], None]) -> None:
        """Run the reloads that are asked for, until closed."""
        while True:
            await self._wanted.wait()
            if self._is_closed:
                return
            # Taken before it begins: who asks later may have changed a file since.
            self._wanted = anyio.Event()
            waiting, self._waiting = self._waiting, []
            await self._run(waiting)
            flush()

    async def _run(self, waiting: list[tuple[Asker, RequestId]]) -> None:
        try:
            outcome = await self._reload()
        except Exception:
            log.exception("reload.failed")
            for asker, request_id in waiting:
                asker.fail(request_id, InternalError("internal error"))
            return
        for asker, request_id in waiting:
            asker.answer(request_id, outcome)

    def close(self) -> None:
        """Start no more reloads; pending requests are answered with Busy."""
        self._is_closed = True
        waiting, self._waiting = self._waiting, []
        for asker, request_id in waiting:
            asker.fail(request_id, Busy("the bus is stopping", retrySeconds=1))
