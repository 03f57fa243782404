"""The name of a worker that the bus has started is its own while it is here."""

from __future__ import annotations

import sys

import pytest

from busd import CallRefused, Client
from busd_plugins.bub.chats import Chat
from tests.agents.bridges import Bridge, light_workers, open_bridge
from tests.daemons import Loop, open_daemon

pytestmark = pytest.mark.anyio

WORKER = Chat("telegram", "1").agent_id
REFUSED = f"{WORKER} is the name of a worker that the bus has started, and that is here"
# A worker whose program takes any name that it is told to.
POSE = """
import sys
from busd import CallRefused, SyncClient
try:
    with SyncClient(sys.argv[1]) as client:
        print("joined as", client.client_id)
except CallRefused as refusal:
    print(refusal.message)
"""
POSERS: dict[str, object] = {
    # In a session of its own it is still the worker's.
    "workers.default.command": ["setsid", "--wait", sys.executable, "-c", POSE],
    "workers.default.pass_text": "argument",
    "workers.default.spawner": "subprocess",
}


async def check_posers(bridge: Bridge) -> None:
    """See that a worker's programs may have its own name, and not that of another chat's."""
    await bridge.route("1", WORKER)
    await bridge.event("spawned")  # it is known now which process it is
    assert await bridge.reply("1") == f"joined as {WORKER}"
    await bridge.route("2", WORKER)
    assert await bridge.reply("2") == REFUSED
    await bridge.route("2", "agent:free")
    assert await bridge.reply("2", 2) == "joined as agent:free"


async def test_a_worker_cannot_pass_for_that_of_another_chat(loop: Loop) -> None:
    with open_daemon(loop, POSERS) as daemon:
        async with open_bridge(daemon) as bridge:
            await check_posers(bridge)


@pytest.mark.parametrize(("policy", "way"), [("open", "unix"), ("open", "tcp"), ("strict", "unix")])
async def test_nobody_takes_the_name_of_a_worker_while_it_is_here(
    loop: Loop, policy: str, way: str
) -> None:
    with open_daemon(loop, light_workers(policy=policy)) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "hello")
            await bridge.event("spawned")  # it is known now which process it is
            addresses = {"unix": f"unix:{daemon.path}", "tcp": f"tcp://127.0.0.1:{daemon.port}"}
            with pytest.raises(CallRefused) as caught:
                async with Client(WORKER, address=addresses[way]):
                    pass
            assert caught.value.message == REFUSED
            await bridge.call("agents.stop", clientId=WORKER)
            async with Client(WORKER, address=addresses[way]):
                pass


async def test_a_worker_that_was_killed_gets_its_name_back(loop: Loop) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "hello")
            for number in range(1, 4):
                await bridge.say(WORKER, "1", "die always")
                await bridge.event("ready", number + 1)
            assert (await bridge.agent())["status"] == "running"
