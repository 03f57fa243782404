"""Messages of users while the bridge, the bus and workers are killed: each is answered, and once.

`python -m tests.plugins.discord.kills` does it at full length; `make test` does a short one.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from busd import BusdError, Client
from tests.daemons import Daemon, open_daemon
from tests.plugins.discord.server import Server, open_server
from tests.plugins.discord.world import TOKEN, World

KINDS = ("bridge", "worker", "bus")


class Site:
    """A bus with the bridge as a process of its own, and workers that say back what they hear."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.server = server
        token = folder / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        self.killed: Counter[str] = Counter()
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

    async def kill(self, daemon: Daemon, kind: str) -> None:
        """Kill a process, as soon as there is one of that kind."""
        while not await self._try_to_kill(daemon, kind):
            await anyio.sleep(0.05)
        self.killed[kind] += 1

    async def _try_to_kill(self, daemon: Daemon, kind: str) -> bool:
        if kind == "bus":
            daemon.process.kill()
            daemon.wait()
            # Not in a thread: the kernel would end the new bus together with the thread.
            daemon.start_again("uvloop", self.settings)
            return True
        try:
            pid = await self._pid(daemon, kind)
            if pid:
                os.kill(pid, signal.SIGKILL)
        except (BusdError, ProcessLookupError):
            return False  # it is just being started
        return bool(pid)

    async def _pid(self, daemon: Daemon, kind: str) -> int:
        method, key = ("bridges.list", "bridges") if kind == "bridge" else ("agents.list", "agents")
        async with Client("test:killer", address=f"unix:{daemon.path}") as bus:
            found: list[dict[str, Any]] = (await bus.call(method))[key]
        return next((int(each["pid"]) for each in found if each.get("pid")), 0)


async def rehearse(
    server: Server, folder: Path, *, chats: int, messages: int, kills: int, patience_seconds: float
) -> Counter[str]:
    """Let users write, kill in between, and check the answers; return what was killed how often."""
    world, site = server.world, Site(folder, server)
    rooms = [world.direct(number) for number in range(1, chats + 1)]
    texts = [f"message {number}" for number in range(messages)]

    def answered() -> Counter[str]:
        return Counter(text for room in rooms for text in world.said(room))

    async with site.running() as daemon:
        asked = 0
        try:
            with anyio.fail_after(patience_seconds):
                for number in range(kills + 1):
                    for text in texts[asked : (number + 1) * messages // (kills + 1)]:
                        world.say(rooms[asked % chats], text, user_id=1 + asked % chats)
                        asked += 1
                    # Of those of the round before: a kill is to hit in the middle.
                    goal = number * messages // (kills + 1)
                    while len(answered()) < goal:
                        await anyio.sleep(0.02)
                    if number < kills:
                        await site.kill(daemon, KINDS[number % len(KINDS)])
                while len(answered()) < messages:
                    await anyio.sleep(0.1)
        except TimeoutError:
            missing = sorted(set(texts) - set(answered()))
            raise AssertionError((missing, site.killed, daemon.log()[-3000:])) from None
    assert answered() == Counter(texts)  # each of them once
    for number, room in enumerate(rooms):
        assert world.said(room) == texts[number::chats], f"the order of chat {number}"
    return site.killed


async def run(chats: int, messages: int, kills: int) -> Counter[str]:
    with tempfile.TemporaryDirectory(prefix="busd-discord-") as folder:
        async with open_server(World()) as server:
            return await rehearse(
                server,
                Path(folder),
                chats=chats,
                messages=messages,
                kills=kills,
                patience_seconds=3_600,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--chats", type=int, default=10)
    args = parser.parse_args()
    begun = time.monotonic()
    killed = anyio.run(run, args.chats, args.messages, args.kills)
    print(
        f"{args.messages} messages, killed {dict(killed)}: each answered, once and in order,"
        f" in {time.monotonic() - begun:.0f} s"
    )


if __name__ == "__main__":
    main()
