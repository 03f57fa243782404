"""A host for the tests: real uvicorn with the real hub, on a bus in memory."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import httpx

from busd.gateway.app import make_app
from busd.gateway.clients import Clients
from busd.gateway.host import Host
from busd.gateway.identity import Identities
from busd.gateway.links import Links
from busd.gateway.loading import Route
from busd.gateway.settings import ClientLimits, GatewayTable
from busd.gateway.tokens import GatewayTokens
from busd.testing.gateway import GatewayKit, open_gateway
from busd.wire.bus_address import BusAddress
from busd.wire.sockets import listen_on
from tests.gateway.host.dialects import Bell, Brief, Echo, Patient, Room

ROUTES = [
    Route("/ws/echo", "echo", "Echo.", Echo),
    Route("/ws/room/{room}/", "room", "Room.", Room),
    Route("/ws/patient", "patient", "Patient.", Patient),
    Route("/ws/brief", "brief", "Brief.", Brief),
    Route("/socket.io", "bell", "Bell.", Bell),
]
LIMITS: dict[str, Any] = {}


class RunningHost(NamedTuple):
    """A host that runs."""

    kit: GatewayKit
    clients: Clients
    host: Host
    tokens: GatewayTokens
    port: int

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    async def until(self, is_so: Any) -> None:
        """Wait until a condition holds."""
        with anyio.fail_after(20):
            while not is_so():
                await anyio.sleep(0.01)


@asynccontextmanager
async def open_host(
    limits: ClientLimits | None = None, extra_routes: Iterable[Any] = (), **table: Any
) -> AsyncIterator[RunningHost]:
    """Run a host until the end of the block, or until it was stopped."""
    # As a stranger, unless the test says otherwise: its own clients run as our user.
    options = {"identify_loopback": False, "agent": "agent:bob", **table}
    settings = GatewayTable(limits=limits or ClientLimits(), **options)
    with listen_on(BusAddress("tcp", host="127.0.0.1", port=0)) as sock:
        port = sock.getsockname()[1]
        async with open_gateway(settings) as kit, anyio.create_task_group() as tasks:
            tokens = GatewayTokens(kit.folder)
            identities = Identities(tokens, identify_loopback=settings.identify_loopback)
            links = Links(b"k" * 32, settings.link_seconds)
            clients = Clients(kit.hub, settings, identities, links)
            async with clients.serving():
                host = Host(clients, make_app(clients, ROUTES, list(extra_routes)), [sock])
                is_ready = anyio.Event()
                tasks.start_soon(host.serve, is_ready.set)
                await is_ready.wait()
                try:
                    yield RunningHost(kit, clients, host, tokens, port)
                finally:
                    host.stop()
                    host.stop()  # the tests of draining wait for themselves


def raw(host: RunningHost) -> socket.socket:
    """Return a plain connection."""
    return socket.create_connection(("127.0.0.1", host.port), timeout=20)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def web(host: RunningHost, **options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=host.http, timeout=20, **options)


def state_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
