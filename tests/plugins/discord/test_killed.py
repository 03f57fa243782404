"""From a user's message to the answer of a spawned worker, while processes are killed.

`BUSD_DISCORD_MESSAGES` and `BUSD_DISCORD_KILLS` make the second test larger.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path

import anyio
import pytest

from busd import BusdError, Client
from tests.daemons import PATIENCE_SECONDS, Daemon, open_daemon
from tests.plugins.discord.server import Server
from tests.plugins.discord.world import BOT, TOKEN, World

pytestmark = pytest.mark.anyio
MESSAGES = int(os.environ.get("BUSD_DISCORD_MESSAGES", "45"))
KILLS = int(os.environ.get("BUSD_DISCORD_KILLS", "6"))


class Site:
    """A bus with the bridge as a process of its own, and workers that say back what they hear."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.server = server
        token = folder / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        self.settings: dict[str, object] = {
            "bridges.discord.token_file": str(token),
            "bridges.discord.api_base": server.api_base,
            "bridges.discord.restarts": 1000,
            "workers.default.command": ["cat"],
            "workers.default.spawner": "subprocess",
            "workers.default.restart_seconds": 0.05,
            "agents.stop_seconds": 1.0,
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Daemon]:
        with open_daemon("uvloop", self.settings) as daemon:
            await self.server.world.wait_until(lambda: self.server.is_joined)
            yield daemon
            text = daemon.log()
        assert TOKEN not in text

    async def kill(self, daemon: Daemon, what: str) -> None:
        if what == "bus":
            daemon.process.kill()
            daemon.wait()
            # Not in a thread: the kernel would end the new bus together with the thread.
            daemon.start_again("uvloop", self.settings)
            return
        method, key = ("bridges.list", "bridges") if what == "bridge" else ("agents.list", "agents")
        try:
            async with Client("test:killer", address=f"unix:{daemon.path}") as bus:
                found = (await bus.call(method))[key]
        except BusdError:
            return
        pids = [each["pid"] for each in found if each.get("pid")]
        if pids:
            try:
                os.kill(pids[0], signal.SIGKILL)
            except ProcessLookupError:
                pass


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


async def wait_for_one_more(world: World) -> None:
    """Wait until something more is answered, if anything still is to be."""

    def count() -> int:
        return sum(len(world.own(chat)) for chat in world.channels.values())

    before = count()
    with anyio.move_on_after(PATIENCE_SECONDS):
        await world.wait_until(lambda: count() > before)


async def test_each_message_is_answered_once_whatever_is_killed(
    server: Server, world: World, tmp_path: Path
) -> None:
    chats = [world.direct(number) for number in range(1, 4)]
    site = Site(tmp_path, server)
    texts = [f"message {number}" for number in range(MESSAGES)]
    victims = cycle(("bridge", "worker", "bus"))
    async with site.running() as daemon:
        for number, text in enumerate(texts):
            world.say(chats[number % 3], text, user_id=1 + number % 3)
            if number % (MESSAGES // KILLS) == MESSAGES // KILLS - 1:
                # Not before something of this round is answered: it is to hit in the middle.
                await wait_for_one_more(world)
                await site.kill(daemon, next(victims))

        def missing() -> Counter[str]:
            said = Counter(text for chat in chats for text in world.said(chat))
            return Counter(texts) - said

        with anyio.move_on_after(60 + MESSAGES):
            while missing():
                await anyio.sleep(0.1)
        assert not missing(), (missing(), daemon.log()[-3000:])
    said = Counter(text for chat in chats for text in world.said(chat))
    assert {text: count for text, count in said.items() if count > 1} == {}
