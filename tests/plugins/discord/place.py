"""One test's bridge: the bus, an agent, the local Discord, and the bridge between them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec

from busd import Bridge, Client, Incoming, Refuse
from busd.bridge import Pace
from busd_plugins.discord.serving import serve_discord
from busd_plugins.discord.settings import DiscordTable
from tests.bridge.toy import ToyAgent
from tests.daemons import PATIENCE_SECONDS
from tests.plugins.discord.server import Server
from tests.plugins.discord.world import TOKEN, Json, World

QUICK = Pace(show_seconds=0.05, refresh_seconds=0.0, patience_seconds=5.0, post_seconds=10.0)


class Place:
    """A bridge that is to be served, and what is around it."""

    def __init__(self, address: str, suffix: str, folder: Path, server: Server) -> None:
        self.address = address
        self.prefix = f"discord{suffix}"
        self.folder = folder
        self.server = server
        self.world: World = server.world
        self.route = Route()
        self.token_file = folder / "token"
        self.token_file.write_text(TOKEN)
        self.token_file.chmod(0o600)

    def table(self, **more: Any) -> DiscordTable:
        return DiscordTable(token_file=str(self.token_file), api_base=self.server.api_base, **more)

    @asynccontextmanager
    async def serving(self, pace: Pace = QUICK, **more: Any) -> AsyncIterator[Bridge]:
        """Serve the bridge within the block; it has joined Discord and the bus."""
        bridge = Bridge(
            f"bridge-{self.prefix}", self.prefix, state=self.folder / "b", address=self.address
        )
        before = self.server.identified
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_discord, bridge, self.table(**more), pace)
            await self.world.wait_until(lambda: self.server.identified > before)
            with anyio.fail_after(PATIENCE_SECONDS):
                while bridge.status.state != "connected" or not bridge.status.is_on_bus:
                    await anyio.sleep(0.01)  # nobody reports it
            yield bridge
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def routing(self) -> AsyncIterator[Route]:
        """Take what the bridge pushes."""
        client = Client("router", address=self.address, timeout_seconds=PATIENCE_SECONDS)
        client.on()(self.route.take)
        async with client:
            await client.subscribe("system:route")
            yield self.route

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[ToyAgent]:
        name = f"agent:{self.prefix}"
        async with Client(name, address=self.address, timeout_seconds=PATIENCE_SECONDS) as bus:
            yield ToyAgent(bus, self.prefix)


class Route:
    """Gets what is pushed; a test says what is refused."""

    def __init__(self) -> None:
        self.got: list[Json] = []
        self.refusals: list[Refuse] = []
        self._changed = anyio.Event()

    async def take(self, message: Incoming) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.got.append(msgspec.to_builtins(message.payload) | {"sender": message.sender})
        self._changed.set()
        self._changed = anyio.Event()

    def texts(self) -> list[str]:
        return [each["content"].get("text", each["type"]) for each in self.got]

    async def wait_for(self, number: int) -> list[str]:
        """Return the texts once there are so many."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while len(self.got) < number:
                await self._changed.wait()
        return self.texts()
