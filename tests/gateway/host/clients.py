"""Real clients for the tests of the host."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import socketio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from tests.gateway.host.hosts import RunningHost, bearer

PATIENCE_SECONDS = 20.0


@asynccontextmanager
async def echo(
    host: RunningHost, token: str = "", path: str = "/ws/echo", **options: Any
) -> AsyncIterator[ClientConnection]:
    """Connect to a test dialect; its greeting is read."""
    headers = {**(bearer(token) if token else {}), **options.pop("headers", {})}
    options = {"compression": None, **options}
    async with connect(f"{host.ws}{path}", additional_headers=headers, **options) as client:
        await read(client)
        yield client


async def read(client: ClientConnection) -> Any:
    """Return the next frame, decoded."""
    with anyio.fail_after(PATIENCE_SECONDS):
        return json.loads(await client.recv())


async def refusal(
    host: RunningHost, path: str = "/ws/echo", headers: dict[str, str] | None = None
) -> tuple[int, str]:
    """Return the status and the text with which a WebSocket is refused."""
    try:
        async with connect(f"{host.ws}{path}", additional_headers=headers or {}):
            raise AssertionError("it was accepted")
    except InvalidStatus as refused:
        return refused.response.status_code, bytes(refused.response.body or b"").decode()


async def close_code(client: ClientConnection) -> int | None:
    """Return the code with which the gateway closes the WebSocket."""
    with anyio.fail_after(PATIENCE_SECONDS):
        await client.wait_closed()
    return client.close_code


class Seen:
    """A client of Socket.IO, and the events that it has got."""

    def __init__(self) -> None:
        self.client = socketio.AsyncClient(reconnection=False)
        self.events: list[tuple[str, Any]] = []
        for namespace in ("/", "/side"):
            self.client.on("*", self._note(namespace), namespace=namespace)
            for event in ("connect", "disconnect", "connect_error"):
                self.client.on(event, self._note(namespace, event), namespace=namespace)

    def _note(self, namespace: str, event: str = "") -> Any:
        def note(*said: Any) -> None:
            name, data = (event, said) if event else (said[0], said[1:])
            self.events.append((f"{namespace}:{name}", data[0] if data else None))

        return note

    async def until(self, event: str) -> Any:
        """Return what the next event of this name carries; others stay."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while True:
                for name, data in self.events:
                    if name == event:
                        self.events.remove((name, data))
                        return data
                await anyio.sleep(0.005)


@asynccontextmanager
async def socket_io(
    host: RunningHost, token: str = "", transports: list[str] | None = None, **options: Any
) -> AsyncIterator[Seen]:
    """Connect python-socketio's own client."""
    seen = Seen()
    query = options.pop("query", "")
    options.setdefault("namespaces", ["/"])
    headers = bearer(token) if token else {}
    await seen.client.connect(
        f"{host.http}/{query}", transports=transports, headers=headers, **options
    )
    try:
        yield seen
    finally:
        await seen.client.disconnect()
