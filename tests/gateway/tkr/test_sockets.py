"""Real clients over real sockets: python-socketio's own, by polling and by WebSocket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
import pytest
import socketio

from busd.gateway.app import make_app
from busd.gateway.clients import Clients
from busd.gateway.host import Host
from busd.gateway.identity import Identities
from busd.gateway.links import Links
from busd.gateway.loading import Route
from busd.gateway.settings import GatewayTable
from busd.gateway.tokens import GatewayTokens
from busd.testing.gateway import GatewayKit, open_gateway
from busd.wire.bus_address import BusAddress
from busd.wire.sockets import listen_on
from busd_plugins.tkr import Tkr

ROUTES = [Route("/socket.io", "tkr", "TKR.", Tkr)]
PATIENCE_SECONDS = 20.0
TRANSPORTS = [["polling"], ["websocket"], ["polling", "websocket"]]


class Served(NamedTuple):
    """A gateway that listens on a port."""

    kit: GatewayKit
    tokens: GatewayTokens
    url: str


@asynccontextmanager
async def open_served() -> AsyncIterator[Served]:
    settings = GatewayTable(identify_loopback=False, agent="agent:bob")
    with listen_on(BusAddress("tcp", host="127.0.0.1", port=0)) as sock:
        port = sock.getsockname()[1]
        async with open_gateway(settings) as kit, anyio.create_task_group() as tasks:
            tokens = GatewayTokens(kit.folder)
            identities = Identities(tokens, identify_loopback=False)
            links = Links(b"k" * 32, settings.link_seconds)
            clients = Clients(kit.hub, settings, identities, links)
            async with clients.serving():
                host, is_ready = Host(clients, make_app(clients, ROUTES), [sock]), anyio.Event()
                tasks.start_soon(host.serve, is_ready.set)
                await is_ready.wait()
                yield Served(kit, tokens, f"http://127.0.0.1:{port}")
                host.stop()
                host.stop()


class SocketClient:
    """A client of python-socketio, and what it was sent."""

    def __init__(self, namespace: str) -> None:
        self.io = socketio.AsyncClient(reconnection=False)
        self.namespace = namespace
        self.frames: list[tuple[str, Any]] = []
        self.io.on("*", self._take, namespace=namespace)

    async def _take(self, event: str, data: Any) -> None:
        self.frames.append((event, data))

    async def call(self, event: str, data: Any) -> Any:
        return await self.io.call(event, data, namespace=self.namespace, timeout=PATIENCE_SECONDS)

    async def until(self, is_last: Callable[[str, Any], bool]) -> list[tuple[str, Any]]:
        """Wait for a frame; return it and all before, and forget them."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while not any(is_last(*each) for each in self.frames):
                await anyio.sleep(0.01)
        found, self.frames = self.frames, []
        return found


@asynccontextmanager
async def connected(
    served: Served, token: str, transports: list[str], query: str, namespace: str = "/agents"
) -> AsyncIterator[SocketClient]:
    client = SocketClient(namespace)
    await client.io.connect(
        f"{served.url}/?{query}",
        headers={"Authorization": f"Bearer {token}"},
        transports=transports,
        namespaces=[namespace],
    )
    try:
        yield client
    finally:
        await client.io.disconnect()


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


def is_complete(event: str, data: Any) -> bool:
    """Whether it is the last frame of an answer."""
    return event == "message" and data.get("turn_complete") is True


def is_pong(event: str, data: Any) -> bool:
    return event == "pong"


def contents(frames: list[tuple[str, Any]]) -> list[str]:
    return [data["content"] for event, data in frames if event == "message"]


@pytest.mark.anyio
@pytest.mark.parametrize("transports", TRANSPORTS, ids="-".join)
@pytest.mark.parametrize("namespace", ["/", "/agents"])
async def test_a_client_asks_an_agent_and_gets_its_answer(
    transports: list[str], namespace: str
) -> None:
    async with open_served() as served:
        bob, token = served.kit.agent("bob"), served.tokens.new("ann")
        async with connected(served, token, transports, "session_id=s1", namespace) as client:
            message = {"id": "m1", "type": "text", "session_id": "s1", "from_user": True}
            ack = await client.call("message", {**message, "content": "hello"})
            assert ack["status"] == "delivered"
            words = bob.words()
            words.tell("turn.delta", text="hello ")
            words.reply("hello yourself")
            assert contents(await client.until(is_complete)) == ["", "hello ", "hello yourself"]
            ack = await client.call("ping", {"timestamp": "2026-02-17T05:00:00Z"})
            assert ack["status"] == "pong"


@pytest.mark.anyio
@pytest.mark.parametrize("transports", TRANSPORTS, ids="-".join)
async def test_a_client_that_was_away_gets_the_answer_once(transports: list[str]) -> None:
    async with open_served() as served:
        bob, token = served.kit.agent("bob"), served.tokens.new("ann")
        async with connected(served, token, transports, "session_id=s1") as client:
            await client.call("message", {"id": "m1", "session_id": "s1", "content": "hello"})
        words = bob.words()
        await served.kit.settle()
        words.reply("hello yourself")
        for expected in (["hello yourself"], []):
            await served.kit.settle()
            async with connected(served, token, transports, "session_id=s1") as client:
                await client.call("ping", None)
                assert contents(await client.until(is_pong)) == expected


@pytest.mark.anyio
async def test_another_user_has_another_session_of_the_same_name() -> None:
    async with open_served() as served:
        bob = served.kit.agent("bob")
        async with (
            connected(served, served.tokens.new("ann"), ["websocket"], "session_id=s1") as ann,
            connected(served, served.tokens.new("ben"), ["websocket"], "session_id=s1") as ben,
        ):
            await ann.call("message", {"id": "m1", "session_id": "s1", "content": "hello"})
            bob.words().reply("hello yourself")
            await ann.until(is_complete)
            await ben.call("ping", None)
            assert [event for event, _ in await ben.until(is_pong)] == ["connect:status", "pong"]


@pytest.mark.anyio
async def test_an_invalid_message_is_an_error_and_the_connection_lives_on() -> None:
    async with open_served() as served:
        served.kit.agent("bob")
        token = served.tokens.new("ann")
        async with connected(served, token, ["websocket"], "session_id=s1", "/") as client:
            message = {"id": "m1", "type": "shout", "session_id": "s1"}
            ack = await client.call("message", message)
            assert (ack["status"], ack["id"]) == ("error", "m1")
            [*_, (_, error)] = await client.until(lambda event, _: event == "error")
            assert error["details"]["field"] == "type"
            ack = await client.call("message", {**message, "type": "text", "content": "hello"})
            assert ack["status"] == "delivered"
