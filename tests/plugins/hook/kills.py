"""Messages of programs while the gateway, the bus and workers are killed: each is answered.

`python -m tests.plugins.hook.kills` does it at full length; `make test` does a short one.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import httpx

from busd import BusdError, Client
from tests.gateway.e2e.place import Victim
from tests.plugins.hook.listener import Listener, open_listener
from tests.plugins.hook.place import Hooks, open_hooks

VICTIMS: tuple[Victim, ...] = ("gateway", "worker", "bus")


async def kill(hooks: Hooks, victim: Victim) -> None:
    """Kill a process, as soon as there is one of that kind."""
    if victim == "gateway":
        await hooks.place.kill_gateway()
    elif victim == "bus":
        await hooks.place.kill_bus()
    else:
        while not await _kill_worker(hooks):
            await anyio.sleep(0.05)


async def _kill_worker(hooks: Hooks) -> bool:
    try:
        async with Client("test:killer", address=f"unix:{hooks.place.daemon.path}") as bus:
            agents: list[dict[str, Any]] = (await bus.call("agents.list"))["agents"]
        pid = next((int(each["pid"]) for each in agents if each.get("pid")), 0)
        if pid:
            os.kill(pid, signal.SIGKILL)
    except (BusdError, ProcessLookupError):
        return False  # it is just being started
    return bool(pid)


async def post(
    hooks: Hooks, listener: Listener, text: str, chat_id: str, patience_seconds: float
) -> None:
    """Post as a careful program does: with a key, until the message is accepted."""
    key = uuid4().hex
    body = {"chat_id": chat_id, "text": text, "callback_url": listener.url()}
    with anyio.fail_after(patience_seconds):
        while True:
            try:
                response = await hooks.post(body, key=key)
                if response.status_code in (200, 202):
                    return
                assert response.status_code == 503, response.text
            except httpx.TransportError:
                pass  # the gateway is just killed
            await anyio.sleep(0.1)


async def rehearse(
    hooks: Hooks, *, chats: int, messages: int, kills: int, patience_seconds: float
) -> tuple[Counter[str], int]:
    """Post, kill, check the callbacks; return what was killed, and how many were repeated."""
    killed: Counter[str] = Counter()
    async with open_listener() as listener:
        listener.faults = [503, 200, "cut", 200, 500, "drop"]

        async def converse(chat: int) -> None:
            for number in range(chat, messages, chats):
                await post(hooks, listener, f"message {number}", f"many-{chat}", patience_seconds)

        def has_seen(count: int) -> bool:
            return len(set(listener.texts())) >= count

        with anyio.fail_after(patience_seconds):
            async with anyio.create_task_group() as tasks:
                for chat in range(chats):
                    tasks.start_soon(converse, chat)
                for number in range(kills):
                    goal = (number + 1) * messages // (kills + 2)
                    await listener.until(partial(has_seen, goal), patience_seconds)
                    await kill(hooks, VICTIMS[number % len(VICTIMS)])
                    killed[VICTIMS[number % len(VICTIMS)]] += 1
            await listener.until(partial(has_seen, messages), patience_seconds)
    return killed, check(listener, chats, messages)


def check(listener: Listener, chats: int, messages: int) -> int:
    """Check that each message has one answer, and all but the first are flagged; count these."""
    known: dict[str, str] = {}  # texts by the ids of answers
    for got in listener.accepted:
        assert got.json["is_repeat"] or got.headers["webhook-id"] not in known
        known[got.headers["webhook-id"]] = got.json["reply"]["text"]
    assert Counter(known.values()) == Counter(f"message {each}" for each in range(messages))
    for chat in range(chats):
        found = [int(each.partition(" ")[2]) for each in known.values()]
        of_chat = [each for each in found if each % chats == chat]
        assert of_chat == sorted(of_chat), f"the order of chat {chat}"
    return len(listener.accepted) - len(known)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--chats", type=int, default=10)
    args = parser.parse_args()
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="busd-hook-") as folder,
        open_hooks(Path(folder), allow_private_callbacks=True) as hooks,
    ):
        run = partial(rehearse, hooks, chats=args.chats, messages=args.messages, kills=args.kills)
        killed, repeated = anyio.run(partial(run, patience_seconds=3_600))
    print(
        f"{args.messages} messages, killed {dict(killed)}: each answered, once and in order,"
        f" {repeated} callbacks repeated with a flag, in {time.monotonic() - begun:.0f} s"
    )


if __name__ == "__main__":
    main()
