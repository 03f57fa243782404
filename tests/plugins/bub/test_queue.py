"""Many chats that begin at once: their workers start one after the other, and none is refused."""

from __future__ import annotations

import signal
from typing import Any

import anyio
import anyio.to_thread
import pytest

from busd import Ack
from busd_plugins.bub.chats import Chat
from busd_plugins.bub.forwarded import KEPT
from tests.daemons import Loop, open_daemon
from tests.plugins.bub.bridges import Bridge, light_workers, open_bridge

pytestmark = pytest.mark.anyio

CHATS = [str(number) for number in range(8)]
# One start takes 0.8 s, all of them longer than a request, or one start, may.
QUEUE: dict[str, object] = {
    "agents.max_starting": 1,
    "agents.ready_seconds": 5.0,
    "plugins.handler_seconds": 4.0,
    "workers.default.environment.BEHAVE": "slow:0.8",
}
# The first start has its place to itself for as long as any may, which is longer than a request.
STUCK: dict[str, object] = {
    **QUEUE,
    "agents.ready_seconds": 60.0,
    "plugins.handler_seconds": 2.5,
    "workers.default.environment.BEHAVE": "slow:60",
}


def steps(bridge: Bridge) -> list[tuple[str, Any]]:
    return [
        (address, payload["content"]["data"])
        for address, payload in bridge.heard
        if payload["content"].get("event") == "turn.step"
    ]


async def test_a_chat_that_is_late_in_a_queue_that_moves_is_answered(loop: Loop) -> None:
    acks: dict[str, Ack] = {}

    async def chat(bridge: Bridge, name: str) -> None:
        acks[name] = await bridge.route(name, f"I am {name}", f"m{name}")

    with open_daemon(loop, light_workers(**QUEUE)) as daemon:
        async with open_bridge(daemon) as bridge:
            async with anyio.create_task_group() as tasks:
                for name in CHATS:
                    tasks.start_soon(chat, bridge, name)
            assert [ack.message for ack in acks.values() if not ack.success] == []
            for name in CHATS:
                worker = Chat("telegram", name).agent_id
                assert await bridge.reply(name) == f"{worker}: I am {name}"
            assert all(len(bridge.replies(name)) == 1 for name in CHATS)
            assert bridge.events("failed") == []


async def test_a_chat_is_told_that_its_agent_is_started_after_others(loop: Loop) -> None:
    with open_daemon(loop, light_workers(**QUEUE)) as daemon:
        async with open_bridge(daemon) as bridge, anyio.create_task_group() as tasks:
            tasks.start_soon(bridge.route, "1", "hello", "m1")
            await bridge.event("spawned")
            for message_id in ("m2", "m3"):
                tasks.start_soon(bridge.route, "2", "hello", message_id)
            await bridge.reply("2", 2)
            told = [
                (address, step["turn"], step["name"], step["status"])
                for address, step in steps(bridge)
            ]
            waiting = "waiting for the agent to be started"
            assert sorted(told) == sorted(
                ("events:tg:2", turn, waiting, status)
                for turn in ("m2", "m3")
                for status in ("in_progress", "complete")
            )


async def test_a_requested_agent_that_waits_for_its_start_is_not_refused(loop: Loop) -> None:
    results: list[dict[str, Any]] = []

    async def spawn(bridge: Bridge, name: str) -> None:
        results.append((await bridge.spawn(name)).read(dict[str, Any])["content"])

    with open_daemon(loop, light_workers(**QUEUE)) as daemon:
        async with open_bridge(daemon) as bridge:
            async with anyio.create_task_group() as tasks:
                for name in CHATS:
                    tasks.start_soon(spawn, bridge, name)
            assert all(result["success"] for result in results), results
            assert {result["status"] for result in results} == {"running", "spawning"}
            await bridge.event("ready", len(CHATS))
            agents = (await bridge.call("agents.list", status="running"))["agents"]
            assert len(agents) == len(CHATS)


async def test_a_message_that_was_acked_in_the_queue_and_failed_is_told_to_its_chat(
    loop: Loop,
) -> None:
    broken = {"workers.web.agent": ["/nowhere/agent"], "workers.web.spawner": "subprocess"}
    with open_daemon(loop, light_workers(**STUCK | broken)) as daemon:
        async with open_bridge(daemon) as bridge, anyio.create_task_group() as tasks:
            await bridge.client.subscribe("web:*")
            tasks.start_soon(bridge.route, "1", "hello")
            await bridge.event("spawned")
            payload = {"type": "tg_message", "content": {"text": "hello"}}
            receipt = await bridge.client.send("system:route", payload, sender="web:7")
            assert receipt.acks[0].success, receipt
            reply = await bridge.wait_for(lambda to, said: (to, said["type"]) == WEB_REPLY)
            assert reply["content"]["text"] == "Sorry, that failed: the agent could not be started"
            assert reply["reply_to_message_id"] == receipt.message_id


WEB_REPLY = ("web:7", "tg_reply")


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
async def test_a_message_that_was_acked_in_the_queue_outlives_the_bus(
    loop: Loop, end: signal.Signals
) -> None:
    acks: list[Ack] = []

    async def say(bridge: Bridge, text: str) -> None:
        acks.append(await bridge.route("2", text, f"m-{text}"))

    with open_daemon(loop, light_workers(**STUCK)) as daemon:
        async with open_bridge(daemon) as bridge:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bridge.route, "1", "hello")
                await bridge.event("spawned")
                for text in ("one", "two", "three"):
                    tasks.start_soon(say, bridge, text)
                await bridge.wait_for(lambda *_: len(steps(bridge)) == 3)
            assert [ack.success for ack in acks] == [True] * 3
            daemon.signal(end)
            await anyio.to_thread.run_sync(daemon.wait)
        daemon.start_again(loop, light_workers())
        async with open_bridge(daemon) as bridge:  # it only listens
            worker = Chat("telegram", "2").agent_id
            await bridge.reply("2", 3)
            said = [f"{worker}: {text}" for text in ("one", "two", "three")]
            assert bridge.replies("2") == said
            daemon.stop()
        daemon.start_again(loop, light_workers())
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("2")
            assert bridge.replies("2") == []  # once is enough


async def test_a_message_that_there_is_no_worker_for_waits_until_there_is_room(loop: Loop) -> None:
    settings = QUEUE | {"agents.max_workers": 2}
    with open_daemon(loop, light_workers(**settings)) as daemon:
        async with open_bridge(daemon) as bridge:
            for chat in ("1", "2"):
                await bridge.route(chat, "hello")
                await bridge.reply(chat)
            ack = await bridge.route("3", "hello", "m3")
            assert (ack.success, ack.read()["content"]["message"]) == (True, KEPT)
            told = [(it["turn"], it["status"]) for to, it in steps(bridge) if to == "events:tg:3"]
            assert told == [("m3", "in_progress")]
            refused = await bridge.spawn("4")
            assert refused.message == (
                "no room for another worker: 2 run or start (setting agents.max_workers)"
            )
            await bridge.call("agents.stop", clientId=Chat("telegram", "1").agent_id)
            assert await bridge.reply("3") == f"{Chat('telegram', '3').agent_id}: hello"
