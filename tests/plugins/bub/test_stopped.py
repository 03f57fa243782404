"""An agent that the operator stops in the middle of a turn: its chat hears of it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from busd import Ack
from busd_plugins.bub.chats import Chat
from tests.daemons import Loop, open_daemon
from tests.plugins.bub.bridges import Bridge, light_workers, open_bridge

pytestmark = pytest.mark.anyio

WORKER = Chat("telegram", "1").agent_id
WHY = "the agent was stopped by the operator"
# Says back what it hears, and takes its time over `wait`.
COMMAND = ["sh", "-c", 'echo "$1"; test "$1" != wait || sleep 60', "say"]
KIT: dict[str, object] = {
    "workers.default.command": COMMAND,
    "workers.default.pass_text": "argument",
    "workers.default.stream": True,
    "workers.default.spawner": "subprocess",
}


def errors(bridge: Bridge, chat: str) -> list[Any]:
    return [
        payload["content"]["data"]
        for address, payload in bridge.heard
        if address == f"events:tg:{chat}" and payload["content"].get("event") == "turn.error"
    ]


async def until_it_works(bridge: Bridge) -> None:
    await bridge.wait_for(lambda _, payload: payload["content"].get("event") == "turn.delta")


async def test_turns_that_were_acked_end_with_an_answer_that_says_so(loop: Loop) -> None:
    with open_daemon(loop, KIT) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "wait", "m1")
            await bridge.route("1", "and this", "m2")
            await until_it_works(bridge)
            stopped = await bridge.call("agents.stop", clientId=WORKER)
            assert stopped["status"] == "stopped"
            assert await bridge.reply("1", 2) == f"Sorry, that failed: {WHY}"
            assert errors(bridge, "1") == [
                {"turn": turn, "code": "stopped", "message": WHY} for turn in ("m1", "m2")
            ]
            # And they are over: the next worker does not begin with them.
            await bridge.route("1", "hello", "m3")
            assert await bridge.reply("1", 3) == "hello"
            assert len(errors(bridge, "1")) == 2


async def test_a_message_that_was_not_acked_gets_a_failed_ack_that_says_so(loop: Loop) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            acks: list[Ack] = []

            async def say() -> None:
                acks.append(await bridge.route("1", "wait"))

            await bridge.route("1", "hello")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(say)
                while not (await bridge.call("agents.list"))["agents"][0]["waiting"]:
                    pass  # it is kept
                await bridge.say(WORKER, "1", "hello again")  # it has the one before this
                await bridge.call("agents.stop", clientId=WORKER)
            assert (acks[0].success, acks[0].message) == (False, WHY)
            assert (await bridge.agent())["status"] == "stopped"
            assert len(bridge.events("spawned")) == 1


async def test_a_restart_takes_the_turn_up_again(loop: Loop) -> None:
    once = 'if test "$1" = wait && ! test -e begun; then touch begun; echo begun; sleep 60; fi'
    command = ["sh", "-c", f'{once}; echo "$1"', "say"]
    with open_daemon(loop, {**KIT, "workers.default.command": command}) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "wait")
            await until_it_works(bridge)
            await bridge.call("agents.restart", clientId=WORKER)
            assert await bridge.reply("1") == "wait"
            assert errors(bridge, "1") == []
