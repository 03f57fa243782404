"""What the tests of the Discord bridge share: a bus, a local Discord, and a bridge to be served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bridge.toy import ToyAgent
from tests.conftest import DaemonWith
from tests.daemons import Daemon, Loop
from tests.plugins.discord.place import Place, Route
from tests.plugins.discord.server import Server, open_server
from tests.plugins.discord.world import World


@pytest.fixture(scope="session")
def loop() -> Loop:
    """The loop of the daemon."""
    return "uvloop"


@pytest.fixture
def anyio_backend() -> str:
    """The loop of the bridge: discord.py runs on asyncio only."""
    return "asyncio"


@pytest.fixture
def daemon(daemon_with: DaemonWith) -> Daemon:
    """A bus and nothing else: what is pushed goes to the tests."""
    return daemon_with({"plugins.disabled": ["bub"]})


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the leases of tokens be those of one test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def server(world: World) -> AsyncIterator[Server]:
    async with open_server(world) as server:
        yield server


@pytest.fixture
def place(daemon: Daemon, server: Server, suffix: str, tmp_path: Path) -> Place:
    return Place(f"unix:{daemon.path}", suffix, tmp_path, server)


@pytest.fixture
async def route(place: Place) -> AsyncIterator[Route]:
    async with place.routing() as route:
        yield route


@pytest.fixture
async def agent(place: Place) -> AsyncIterator[ToyAgent]:
    async with place.agent() as agent:
        yield agent
