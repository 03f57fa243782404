"""A bus restart behind a socket that stays open, with what ended workers left in its backlog."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import anyio
import anyio.to_thread
import pytest

from busd import Client
from busd_plugins.bub.chats import Chat
from tests.daemons import PATIENCE_SECONDS, Loop
from tests.plugins.bub.bridges import Bridge, light_workers
from tests.systemd.test_inherit import first_line, open_heir
from tests.wire_peers import LinePeer, open_unix

pytestmark = pytest.mark.anyio

WORKER = Chat("telegram", "1").agent_id


@pytest.fixture
def listening(tmp_path: Path, opened: ExitStack) -> socket.socket:
    """A socket that outlives the daemons, as systemd holds it."""
    sock = opened.enter_context(socket.socket(socket.AF_UNIX))
    sock.bind(str(tmp_path / "bus.sock"))
    sock.listen()
    return sock


@contextmanager
def serve(
    loop: Loop, listening: socket.socket, folder: Path, **settings: object
) -> Iterator[Popen[str]]:
    """Run a bus that inherits the socket; it is told to stop at the end."""
    config = folder / "busd.toml"
    every = {"policy": "open", **light_workers(**settings)}
    config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in every.items()))
    words = ["-m", "busd", "serve", "--json", "--loop", loop, "--config", str(config)]
    words += ["--state", str(folder / "state"), "--log-level", "error"]
    with open_heir(words, [listening], folder) as process:
        first_line(process)
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0


@asynccontextmanager
async def join(listening: socket.socket) -> AsyncIterator[Bridge]:
    async with Client("operator", address=f"unix:{listening.getsockname()}") as client:
        yield Bridge(client)


async def leave_remains(listening: socket.socket, opened: ExitStack) -> LinePeer:
    """Connect as the worker does while no bus accepts, and write `initialize` into the backlog."""
    remains = LinePeer(open_unix(listening.getsockname()))
    opened.callback(remains.close)
    remains.request("initialize", {"clientId": WORKER})
    return remains


async def until_away(bridge: Bridge) -> None:
    """Wait until nobody of the worker's name is on the bus."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while WORKER in await names(bridge):
            await anyio.sleep(0.02)  # nobody is told who leaves


async def names(bridge: Bridge) -> list[str]:
    status: dict[str, Any] = await bridge.call("getStatus")
    return [each["clientId"] for each in status["connections"]]


async def test_an_agent_is_not_running_because_its_ended_worker_left_a_connection(
    loop: Loop, listening: socket.socket, tmp_path: Path, opened: ExitStack
) -> None:
    with serve(loop, listening, tmp_path):
        async with join(listening) as bridge:
            await bridge.spawn("1")
            assert (await bridge.agent())["status"] == "running"
    remains = await leave_remains(listening, opened)
    with serve(loop, listening, tmp_path):
        await anyio.to_thread.run_sync(remains.next_json)  # it has joined
        async with join(listening) as bridge:
            assert (await bridge.agent())["status"] == "stopped"
            remains.close()
            await until_away(bridge)
            record = await bridge.agent()
            assert (record["status"], record["pid"]) == ("stopped", None)
            assert record["stoppedAt"] is not None
            stopped = await bridge.call("agents.stop", clientId=WORKER)
            assert stopped["status"] == "stopped"
            await bridge.spawn("1")
            assert (await bridge.agent())["status"] == "running"


async def test_an_agent_whose_ended_worker_left_a_connection_is_forgotten_in_time(
    loop: Loop, listening: socket.socket, tmp_path: Path, opened: ExitStack
) -> None:
    with serve(loop, listening, tmp_path):
        async with join(listening) as bridge:
            await bridge.spawn("1")
    remains = await leave_remains(listening, opened)
    remains.close()
    with serve(loop, listening, tmp_path, **{"agents.keep_days": 0.3 / 86_400}):
        async with join(listening) as bridge:
            with anyio.fail_after(PATIENCE_SECONDS):
                while (await bridge.call("agents.list"))["agents"]:
                    await anyio.sleep(0.05)  # nobody is told
