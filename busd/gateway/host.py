"""The host: uvicorn's server with our connections, and how it stops."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import uvicorn

from busd.gateway.clients import Clients
from busd.gateway.http_connection import GatewayConfig
from busd.gateway.open_sockets import OpenSockets
from busd.gateway.ws_connection import WebSocketConnection
from busd.ops import notify
from busd.ops.log_limit import REPORT_SECONDS, log_limit

_LOOK_SECONDS = 0.5
_LINGER_SECONDS = 2.0  # for clients to read the last frames
_MORE_SOCKETS = 512  # than there may be clients: single requests, and strangers


class _Server(uvicorn.Server):
    """uvicorn's server, without its own handling of signals."""

    def __init__(self, config: GatewayConfig, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()


class Host:
    """The server of the application, and its stop."""

    def __init__(self, clients: Clients, app: object, listeners: list[socket.socket]) -> None:
        self._clients = clients
        self._listeners = listeners
        limit = clients.table.limits.clients + _MORE_SOCKETS
        self.sockets = OpenSockets(limit)
        self._config = GatewayConfig(app, self.sockets, WebSocketConnection)
        self._is_stopping = anyio.Event()
        self._must_hurry = anyio.Event()
        self._has_ended = anyio.Event()

    async def serve(self, on_ready: Callable[[], None]) -> None:
        """Serve until `stop` is called."""
        server = _Server(self._config, on_ready)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._look_often)
            tasks.start_soon(self._run, server)
            await self._is_stopping.wait()
            await self._drain(server)
            server.should_exit = True
            await self._has_ended.wait()
            tasks.cancel_scope.cancel()

    def stop(self) -> None:
        """Drain, and end `serve` then; if called again, wait for nothing more."""
        if self._is_stopping.is_set():
            self._must_hurry.set()
        self._is_stopping.set()

    async def _run(self, server: _Server) -> None:
        try:
            await server.serve(self._listeners)
        finally:
            for listener in getattr(server, "servers", ()):  # there is none before the start
                listener.close()
            self._has_ended.set()
            self._is_stopping.set()

    async def _look_often(self) -> None:
        """Close silent sockets, feed the watchdog, and report which log lines were left out."""
        watchdog = notify.Watchdog()
        report_at = anyio.current_time() + REPORT_SECONDS
        while True:
            await anyio.sleep(_LOOK_SECONDS)
            self.sockets.sweep()
            watchdog.feed()
            if anyio.current_time() >= report_at:
                report_at = anyio.current_time() + REPORT_SECONDS
                log_limit.report()

    async def _drain(self, server: _Server) -> None:
        """Accept nobody, finish what was begun, and close all connections."""
        seconds = self._clients.table.drain_seconds
        notify.stopping(seconds + _LINGER_SECONDS + 5)
        for listener in server.servers:
            listener.close()
        await self._clients.drain(seconds, self._must_hurry)
        self._clients.close_all()
        open_connections = server.server_state.connections
        for connection in list(open_connections):
            connection.shutdown()
        with anyio.move_on_after(_LINGER_SECONDS):
            while open_connections and not self._must_hurry.is_set():
                await anyio.sleep(0.02)
        for connection in list(open_connections):
            connection.transport.abort()
