"""The name of a worker is its own from its first start until its session is forgotten."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack

import anyio
import anyio.to_thread
import pytest

from busd import CallRefused, Client
from busd_plugins.bub.chats import Chat
from tests.bus.access.guarded import is_closed
from tests.daemons import PATIENCE_SECONDS, Daemon, Loop, open_daemon
from tests.keeper.keepers import keepers
from tests.plugins.bub.bridges import Bridge, light_workers, open_bridge
from tests.wire_peers import Peer, connect

pytestmark = pytest.mark.anyio

WORKER = Chat("telegram", "1").agent_id
REFUSED = f"{WORKER} is the name of a worker of this bus: only its own processes may have it"
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


def address_of(daemon: Daemon, way: str) -> str:
    return {"unix": f"unix:{daemon.path}", "tcp": f"tcp://127.0.0.1:{daemon.port}"}[way]


async def check_refused(daemon: Daemon, way: str) -> None:
    with pytest.raises(CallRefused) as caught:
        async with Client(WORKER, address=address_of(daemon, way)):
            pass
    assert caught.value.message == REFUSED


@pytest.mark.parametrize(("policy", "way"), [("open", "unix"), ("open", "tcp"), ("strict", "unix")])
async def test_nobody_takes_the_name_of_a_worker_that_is_here_or_away(
    loop: Loop, policy: str, way: str
) -> None:
    with open_daemon(loop, light_workers(policy=policy)) as daemon:
        async with open_bridge(daemon) as bridge:
            async with Client(WORKER, address=address_of(daemon, way)):
                pass  # it has never been started
            await bridge.route("1", "hello")
            await bridge.event("spawned")  # it is known now which process it is
            await check_refused(daemon, way)
            await bridge.call("agents.stop", clientId=WORKER)
            await check_refused(daemon, way)
            await bridge.route("1", "hello")  # it comes back, and has its name
            assert await bridge.reply("1", 2) == f"{WORKER}: hello"


async def test_nobody_takes_the_name_of_a_worker_before_it_is_started_again(loop: Loop) -> None:
    settings = light_workers(**{"workers.default.restart_seconds": 1.0})
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "hello")
            await bridge.say(WORKER, "1", "die")
            await bridge.event("exited")
            for way in ("unix", "tcp"):
                await check_refused(daemon, way)
            await bridge.event("ready", 2)


async def test_nobody_takes_the_name_of_a_worker_of_an_earlier_bus(loop: Loop) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "hello")
        daemon.stop()
        daemon.start_again(loop, light_workers())
        await check_refused(daemon, "unix")


async def test_the_name_of_an_agent_that_is_forgotten_is_free(loop: Loop) -> None:
    settings = light_workers(**{"agents.keep_days": 0.3 / 86_400})
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            await check_refused(daemon, "unix")
            await bridge.call("agents.stop", clientId=WORKER)
            with anyio.fail_after(PATIENCE_SECONDS):
                while (await bridge.call("agents.list"))["agents"]:
                    await anyio.sleep(0.05)  # nobody is told
            async with Client(WORKER, address=address_of(daemon, "unix")):
                pass


async def test_who_took_the_name_while_the_worker_was_started_has_to_leave(
    loop: Loop, opened: ExitStack
) -> None:
    """A worker is known by its processes; until its keeper has named them nobody can tell."""
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge, anyio.create_task_group() as tasks:
            await bridge.spawn("1")
            await bridge.call("agents.stop", clientId=WORKER)
            (keeper,) = keepers(daemon.folder / "state")
            os.kill(keeper, signal.SIGSTOP)
            tasks.start_soon(bridge.route, "1", "hello")
            squatter = await take_name(daemon, opened)
            os.kill(keeper, signal.SIGCONT)
            assert await bridge.reply("1") == f"{WORKER}: hello"
            assert await anyio.to_thread.run_sync(is_closed, squatter)
            status = await bridge.client.status()
            names = [each["clientId"] for each in status["connections"]]
            assert names.count(WORKER) == 1


async def take_name(daemon: Daemon, opened: ExitStack) -> Peer:
    """Take the name of the worker once its start has begun."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while True:
            peer = connect(daemon, "unix")
            opened.callback(peer.close)
            answer = peer.answer_to(peer.request("initialize", {"clientId": WORKER}))
            if "result" in answer:
                return peer
            await anyio.sleep(0.01)  # nobody is told


@pytest.mark.parametrize("policy", ["open", "strict"])
async def test_a_worker_over_loopback_tcp_has_its_name_and_nobody_else(
    loop: Loop, policy: str
) -> None:
    settings = light_workers(policy=policy)
    settings["workers.default.environment.CONNECT"] = "tcp"
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "hello")
            for number in range(1, 4):  # it comes back as often as it has to
                await bridge.event("ready", number)
                await check_refused(daemon, "tcp")
                await bridge.say(WORKER, "1", "die always")
            await bridge.event("ready", 4)


async def test_a_worker_that_was_killed_gets_its_name_back(loop: Loop) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "hello")
            for number in range(1, 4):
                await bridge.say(WORKER, "1", "die always")
                await bridge.event("ready", number + 1)
            # Words that came just behind mail are mail, too, and then the next worker gets them.
            with anyio.fail_after(PATIENCE_SECONDS):
                while (await bridge.agent())["status"] != "running":
                    await anyio.sleep(0.01)
