"""Turns that were acked never go silent: they are taken up again, or their chat is told."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from busd_plugins.bub.chats import Chat
from tests.daemons import PATIENCE_SECONDS, Daemon, Loop, open_daemon
from tests.plugins.bub.bridges import Bridge, open_bridge

pytestmark = pytest.mark.anyio

WORKER = Chat("telegram", "1").agent_id


def kit(script: str, **more: object) -> dict[str, object]:
    """Return settings of workers of the kit that run a shell script for each message."""
    return {
        "workers.default.command": ["sh", "-c", script, "say"],
        "workers.default.pass_text": "argument",
        "workers.default.stream": True,
        "workers.default.spawner": "subprocess",
        "workers.default.restart_seconds": 0.05,
        "agents.stop_seconds": 1.0,
        **more,
    }


# It says that it has begun, and goes on when it is let.
BEGIN = "echo begun; until [ -e go ]; do sleep 0.02; done"
# The first time it says that it has begun, and stays at it.
STUCK_ONCE = '[ -e begun ] || { touch begun; echo begun; sleep 60; }; echo "answer: $1"'


def errors(bridge: Bridge) -> list[tuple[str, Any]]:
    return [
        (address, payload["content"]["data"])
        for address, payload in bridge.heard
        if payload["content"].get("event") == "turn.error"
    ]


async def begin(bridge: Bridge, *message_ids: str) -> None:
    """Have the agent begin with the first of some messages, and keep the others."""
    for message_id in message_ids:
        assert (await bridge.route("1", "hello", message_id)).success
    await bridge.wait_for(lambda _, payload: payload["content"].get("event") == "turn.delta")


async def let_go(bridge: Bridge) -> None:
    (Path((await bridge.agent())["workspace"]) / "go").touch()


async def end(daemon: Daemon, how: signal.Signals) -> None:
    daemon.signal(how)
    await anyio.to_thread.run_sync(daemon.wait)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_turns_that_a_bus_took_with_it_are_answered_by_the_next_without_a_word(
    loop: Loop, how: signal.Signals
) -> None:
    settings = kit(STUCK_ONCE)
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            await begin(bridge, "m1", "m2")
            await end(daemon, how)
        daemon.start_again(loop, settings)
        async with open_bridge(daemon) as bridge:  # it only listens
            assert (await bridge.reply("1")).strip() == "answer: hello"
            assert (await bridge.reply("1", 2)).strip() == "answer: hello"
            assert (await bridge.agent())["status"] == "running"


async def test_workers_without_unfinished_turns_are_not_started_with_the_bus(loop: Loop) -> None:
    settings = kit('echo "answer: $1"')
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "hello")
            await bridge.reply("1")
            await end(daemon, signal.SIGTERM)
        daemon.start_again(loop, settings)
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("2")  # a start of another one takes as long
            assert not [it for it in bridge.events("spawned") if it["agent_id"] == WORKER]


async def test_no_more_workers_are_started_with_the_bus_than_may_start_at_a_time(
    loop: Loop,
) -> None:
    settings = kit(STUCK_ONCE, **{"agents.max_starting": 1})
    chats = [str(number) for number in range(1, 5)]
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            for chat in chats:
                await bridge.route(chat, "hello")
                await bridge.wait_for(lambda to, it, chat=chat: is_delta(to, it, chat))  # type: ignore[misc]
            await end(daemon, signal.SIGTERM)
        daemon.start_again(loop, settings)
        async with open_bridge(daemon) as bridge:
            for chat in chats:
                assert (await bridge.reply(chat)).strip() == "answer: hello"
            happened = [
                payload["content"]["event"]
                for address, payload in bridge.heard
                if address == "system:events" and "event" in payload["content"]
            ]
            starts = "".join("(" if it == "spawned" else ")" for it in happened)
            assert "((" not in starts


def is_delta(to: str, payload: dict[str, Any], chat: str) -> bool:
    return to.endswith(f"tg:{chat}") and payload["content"].get("event") == "turn.delta"


async def test_a_worker_that_fails_in_mid_turn_tells_its_chat(loop: Loop) -> None:
    settings = kit(f"{BEGIN}; kill -9 $PPID", **{"workers.default.restarts": 1})
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            await begin(bridge, "m1", "m2")
            await let_go(bridge)
            why = "the agent failed (killed by SIGKILL)"
            assert await bridge.reply("1") == f"Sorry, that failed: {why}"
            assert await bridge.reply("1", 2) == f"Sorry, that failed: {why}"
            assert (await bridge.agent())["status"] == "failed"
            data = [{"turn": it, "code": "worker_failed", "message": why} for it in ("m1", "m2")]
            assert errors(bridge) == [("events:tg:1", it) for it in data]
            replies = [it for to, it in bridge.heard if to == "tg:1"]
            assert [it["reply_to_message_id"] for it in replies] == ["m1", "m2"]
            assert {it["from"] for it in replies} == {WORKER}


async def test_what_a_chat_was_told_has_failed_is_not_answered_later(loop: Loop) -> None:
    dies = f'[ "$1" != hello ] || {{ {BEGIN}; kill -9 $PPID; }}; echo "answer: $1"'
    with open_daemon(loop, kit(dies, **{"workers.default.restarts": 0})) as daemon:
        async with open_bridge(daemon) as bridge:
            await begin(bridge, "m1")
            await let_go(bridge)
            assert (await bridge.reply("1")).startswith("Sorry, that failed: ")
            with anyio.fail_after(PATIENCE_SECONDS):
                while not (await bridge.route("1", "and now")).success:
                    pass  # what comes in the very moment of the failure fails with it
            assert (await bridge.reply("1", 2)).strip() == "answer: and now"
            assert len(bridge.replies("1")) == 2


async def test_a_worker_that_leaves_in_mid_turn_tells_its_chat(loop: Loop) -> None:
    """It ends by itself with exit code 0: nobody calls that a failure, and nobody restarts it."""
    script = f"{BEGIN}; kill -INT $PPID; sleep 60"
    with open_daemon(loop, kit(script)) as daemon:
        async with open_bridge(daemon) as bridge:
            await begin(bridge, "m1")
            await let_go(bridge)
            assert await bridge.reply("1") == "Sorry, that failed: the agent was stopped"
            assert (await bridge.agent())["status"] == "stopped"


async def test_a_turn_whose_worker_cannot_be_started_with_the_bus_is_told_to_its_chat(
    loop: Loop,
) -> None:
    with open_daemon(loop, kit(STUCK_ONCE)) as daemon:
        async with open_bridge(daemon) as bridge:
            await begin(bridge, "m1")
            await end(daemon, signal.SIGTERM)
        broken = {"workers.default.agent": ["/nowhere/agent"], "workers.default.restarts": 0}
        daemon.start_again(loop, {**broken, "workers.default.spawner": "subprocess"})
        async with open_bridge(daemon) as bridge:
            said = await bridge.reply("1")
            assert said == "Sorry, that failed: the agent could not be started"


async def test_a_restart_of_a_busy_worker_tells_nobody_that_it_failed(loop: Loop) -> None:
    with open_daemon(loop, kit(STUCK_ONCE)) as daemon:
        async with open_bridge(daemon) as bridge:
            await begin(bridge, "m1")
            await bridge.call("agents.restart", clientId=WORKER)
            with anyio.fail_after(PATIENCE_SECONDS):
                assert (await bridge.reply("1")).strip() == "answer: hello"
            assert errors(bridge) == []
