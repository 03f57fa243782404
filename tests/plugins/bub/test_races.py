"""Starts, stops and messages that meet in the same moment."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from busd import Ack
from busd_plugins.bub.chats import Chat
from tests.daemons import PATIENCE_SECONDS, Loop, open_daemon
from tests.plugins.bub.bridges import LIGHT, Bridge, light_workers, open_bridge

pytestmark = pytest.mark.anyio

SECOND = Chat("telegram", "2").agent_id
LINGERING = [*LIGHT[:-1], str(Path(__file__).with_name("lingering_agent.py"))]


async def test_a_message_that_comes_while_the_worker_is_stopped_is_answered_by_the_next(
    loop: Loop,
) -> None:
    settings = light_workers(**{"workers.default.agent": LINGERING, "agents.stop_seconds": 5.0})
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge, anyio.create_task_group() as tasks:
            await bridge.route("1", "first")
            agent = await bridge.agent()
            tasks.start_soon(stop, bridge, agent["clientId"])
            await until_there(Path(agent["workspace"]) / "data/ending")
            assert (await bridge.route("1", "second")).success
            assert await bridge.reply("1", 2) == f"{agent['clientId']}: second"


async def test_no_more_workers_than_allowed_are_started_at_the_same_moment(loop: Loop) -> None:
    with open_daemon(loop, light_workers(**{"agents.max_workers": 2})) as daemon:
        async with open_bridge(daemon) as bridge:
            outcomes: list[bool] = []

            async def spawn(chat: str) -> None:
                outcomes.append((await bridge.spawn(chat)).success)

            async with anyio.create_task_group() as tasks:
                for number in range(10):
                    tasks.start_soon(spawn, str(number))
            assert sum(outcomes) == 2


async def test_a_worker_stopped_in_the_moment_of_its_start_does_not_run_on(loop: Loop) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge, anyio.create_task_group() as tasks:
            tasks.start_soon(bridge.spawn, "1")
            with anyio.fail_after(PATIENCE_SECONDS):
                while not (await bridge.call("agents.list"))["agents"]:
                    pass
            agent = await bridge.agent()
            record = await bridge.call("agents.stop", clientId=agent["clientId"])
            assert record["pid"] is None
            assert record["status"] in ("stopped", "failed")


async def test_a_start_that_waits_for_its_turn_can_be_stopped(loop: Loop) -> None:
    silent = {"workers.default.environment.BEHAVE": "silent", "agents.max_starting": 1}
    with open_daemon(loop, light_workers(**silent)) as daemon:
        async with open_bridge(daemon) as bridge, anyio.create_task_group() as tasks:
            tasks.start_soon(bridge.spawn, "1")
            await bridge.event("spawned")
            acks: list[Ack] = []

            async def spawn() -> None:
                acks.append(await bridge.spawn("2"))

            async with anyio.create_task_group() as second:
                second.start_soon(spawn)
                with anyio.fail_after(PATIENCE_SECONDS):
                    while len((await bridge.call("agents.list"))["agents"]) < 2:
                        pass
                record = await bridge.call("agents.stop", clientId=SECOND)
            assert (record["status"], record["pid"]) == ("stopped", None)
            assert (acks[0].success, acks[0].message) == (False, "the worker was stopped")
            assert len(bridge.events("spawned")) == 1
            await bridge.call("agents.stop", clientId=Chat("telegram", "1").agent_id)


async def stop(bridge: Bridge, client_id: str) -> None:
    await bridge.call("agents.stop", clientId=client_id)


async def until_there(file: Path) -> None:
    with anyio.fail_after(PATIENCE_SECONDS):
        while not await anyio.Path(file).exists():
            await anyio.sleep(0.01)  # another process makes it
