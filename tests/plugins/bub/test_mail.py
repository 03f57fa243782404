"""Messages to agents are kept until they are answered: whatever ends meanwhile, none is lost."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from busd import Ack
from busd_plugins.bub.chats import Chat
from tests.daemons import Daemon, Loop, open_daemon
from tests.plugins.bub.bridges import Bridge, light_workers, open_bridge
from tests.plugins.bub.test_queue import STUCK, steps

pytestmark = pytest.mark.anyio

WORKER = Chat("telegram", "1").agent_id
SECOND = Chat("telegram", "2").agent_id
ONE_WORKER: dict[str, object] = {"agents.max_workers": 1}


def dead_letters(daemon: Daemon) -> list[tuple[str, str]]:
    """Return the address and the reason of each dead letter; the daemon has ended."""
    db = sqlite3.connect(Path(daemon.folder) / "state/mail.db")
    try:
        return db.execute("SELECT address, reason FROM dead ORDER BY id").fetchall()
    finally:
        db.close()


async def kill(daemon: Daemon) -> None:
    daemon.signal(signal.SIGKILL)
    await anyio.to_thread.run_sync(daemon.wait)


async def test_a_message_outlives_a_bus_that_is_killed_before_its_worker_is_started(
    loop: Loop,
) -> None:
    """Not even a session of the chat was written then."""
    with open_daemon(loop, light_workers(**ONE_WORKER)) as daemon:
        async with open_bridge(daemon) as bridge, anyio.create_task_group() as tasks:
            await bridge.route("1", "hello")
            tasks.start_soon(bridge.route, "2", "one", "m1")
            await bridge.wait_for(lambda *_: len(steps(bridge)) == 1)
            tasks.cancel_scope.cancel()
        await kill(daemon)
        daemon.start_again(loop, light_workers(**ONE_WORKER))
        async with open_bridge(daemon) as bridge:
            assert await bridge.reply("2") == f"{SECOND}: one"
            ack = await bridge.route("2", "one", "m1")  # sent again, as after any lost connection
            assert (ack.success, ack.read()) == (True, {"by": SECOND})
            await bridge.route("2", "two", "m2")
            await bridge.reply("2", 2)
            assert bridge.replies("2") == [f"{SECOND}: one", f"{SECOND}: two"]


async def test_a_message_sent_again_while_it_waits_reaches_the_worker_once(loop: Loop) -> None:
    acks: list[Ack] = []

    async def say(bridge: Bridge) -> None:
        acks.append(await bridge.route("1", "hello", "m1"))

    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(say, bridge)
            assert [ack.read() for ack in acks] == [{"by": WORKER}] * 3
            await bridge.route("1", "other words with the same id", "m1")
            await bridge.reply("1", 2)
            said = [f"{WORKER}: hello", f"{WORKER}: other words with the same id"]
            assert bridge.replies("1") == said


async def test_a_starting_worker_is_configured_before_it_gets_what_waits_in_order(
    loop: Loop,
) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            await bridge.call("agents.stop", clientId=WORKER)
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    to = "system:route" if number % 2 else WORKER
                    tasks.start_soon(bridge.say, to, "1", str(number))
                tasks.start_soon(bridge.route, "1", "heard")
            await bridge.reply("1", 21)
            said = [f"{WORKER}: {number}" for number in range(20)]
            assert bridge.replies("1") == [*said, "configure" + 21 * " tg_message"]


async def test_a_worker_that_died_owing_acks_gets_the_messages_again_and_can_tell(
    loop: Loop,
) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge, anyio.create_task_group() as tasks:
            await bridge.spawn("1")
            for text in ("die, attempt", "after"):
                tasks.start_soon(bridge.route, "1", text)
            await bridge.reply("1", 2)
            assert bridge.replies("1") == ["attempt 2", f"{WORKER}: after"]


async def test_a_message_that_kills_its_workers_takes_no_other_with_it(loop: Loop) -> None:
    acks: dict[str, Ack] = {}

    async def say(bridge: Bridge, text: str) -> None:
        acks[text] = await bridge.route("1", text)

    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            async with anyio.create_task_group() as tasks:
                for text in ("die always", "one", "two"):
                    tasks.start_soon(say, bridge, text)
            assert [ack.success for ack in acks.values()].count(False) == 1
            assert acks["die always"].message == "peer left before it answered"
            assert bridge.replies("1") == [f"{WORKER}: one", f"{WORKER}: two"]
        daemon.stop()
        assert dead_letters(daemon) == [(WORKER, "peer left before it answered")]


async def test_a_sender_that_waits_for_a_start_that_fails_is_told_and_its_chat_is_not(
    loop: Loop,
) -> None:
    broken = {"workers.web.agent": ["/nowhere/agent"]}
    with open_daemon(loop, light_workers(**broken)) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.client.subscribe("web:*")
            receipt = await bridge.client.send(
                "system:route", {"type": "tg_message", "content": {"text": "hi"}}, sender="web:7"
            )
            [ack] = receipt.acks
            assert ack.message.startswith("the worker cannot be started: ")
            await bridge.route("1", "hello")  # what is said to a chat would be said by now
            await bridge.reply("1")
            assert [to for to, _ in bridge.heard if to == "web:7"] == []
        daemon.stop()
        [(address, reason)] = dead_letters(daemon)
        assert (address, reason) == (Chat("web", "7").agent_id, ack.message)


async def test_a_failed_start_is_told_once_to_a_chat_whose_sender_was_answered(
    loop: Loop,
) -> None:
    broken = {"workers.web.agent": ["/nowhere/agent"], "workers.web.spawner": "subprocess"}
    with open_daemon(loop, light_workers(**STUCK | broken)) as daemon:
        async with open_bridge(daemon) as bridge, anyio.create_task_group() as tasks:
            for pattern in ("web:*", "events:web:*"):
                await bridge.client.subscribe(pattern)
            tasks.start_soon(bridge.route, "1", "hello")
            await bridge.event("spawned")
            payload = {"type": "tg_message", "content": {"text": "hello"}}
            receipt = await bridge.client.send("system:route", payload, sender="web:7")
            assert receipt.acks[0].success
            await bridge.wait_for(lambda to, said: (to, said["type"]) == ("web:7", "tg_reply"))
            await bridge.event("failed")
            tasks.cancel_scope.cancel()
            events = [it["content"]["event"] for to, it in bridge.heard if to == "events:web:7"]
            assert events == ["turn.step", "turn.step", "turn.error"]
            assert len([to for to, _ in bridge.heard if to == "web:7"]) == 1
        daemon.stop()
        assert len(dead_letters(daemon)) == 1


async def test_what_waits_for_a_worker_that_the_operator_stops_is_refused(loop: Loop) -> None:
    acks: list[Ack] = []

    async def say(bridge: Bridge) -> None:
        acks.append(await bridge.route("2", "hello"))

    with open_daemon(loop, light_workers(**ONE_WORKER)) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "hello")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(say, bridge)
                await bridge.wait_for(lambda *_: len(steps(bridge)) == 1)
                await bridge.call("agents.stop", clientId=SECOND)
            assert acks[0].message == "the agent was stopped by the operator"
            await bridge.call("agents.stop", clientId=WORKER)
            await bridge.spawn("1")  # a start of another one takes as long
            assert bridge.replies("2") == []
        daemon.stop()
        assert dead_letters(daemon) == [(SECOND, "the agent was stopped by the operator")]
