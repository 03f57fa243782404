"""From a user's message to the answer of a spawned worker, while processes are killed."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from busd import Client
from tests.daemons import PATIENCE_SECONDS, Daemon
from tests.plugins.discord.kills import Site, rehearse
from tests.plugins.discord.server import Server
from tests.plugins.discord.world import BOT, World

pytestmark = pytest.mark.anyio


async def test_a_worker_is_started_for_a_chat_and_its_answer_names_the_question(
    server: Server, world: World, tmp_path: Path
) -> None:
    room = world.add()
    site = Site(tmp_path, server)
    async with site.running() as daemon:
        asked = world.say(room, f"<@{BOT}> hello")
        await world.wait_until(lambda: world.said(room) == ["hello"])
        async with Client("test:asking", address=f"unix:{daemon.path}") as bus:
            listed = (await bus.call("bridges.list"))["bridges"]
            delivered = await until_delivered(bus, f"discord:{room.id}")
        question = await trace(daemon, delivered.removesuffix(".reply"))
        reply = await trace(daemon, delivered)
    [bridge] = [each for each in listed if each.get("pid")]
    assert bridge["status"]["state"] == "connected"
    assert bridge["status"]["pushed"] == 1
    for name in (f"discord:{room.id}", "system:route", "plugin:bub", "agent:worker-"):
        assert name in question
    assert "discord-bridge" in reply
    [answer] = world.own(room)
    assert answer["message_reference"]["message_id"] == asked["id"]


async def until_delivered(bus: Client, address: str) -> str:
    """Return the message id of the reply that the bridge has acked."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while True:
            for entry in (await bus.call("bus.log", {"to": address}))["entries"]:
                if entry["peer"] == "discord-bridge" and entry["status"] == "ok":
                    return str(entry["messageId"])
            await anyio.sleep(0.05)  # the log is written in batches


async def trace(daemon: Daemon, message_id: str) -> str:
    command = [sys.executable, "-m", "busd", "trace", message_id]
    done = await anyio.run_process([*command, "--address", f"unix:{daemon.path}"])
    return done.stdout.decode()


async def test_each_message_is_answered_once_whatever_is_killed(
    server: Server, tmp_path: Path
) -> None:
    killed = await rehearse(
        server, tmp_path, chats=3, messages=45, kills=6, patience_seconds=4 * PATIENCE_SECONDS
    )
    assert killed == {"bridge": 2, "worker": 2, "bus": 2}
