"""`configure`: whoever it is sent to, the session keeps it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from busd import Ack
from busd_plugins.bub.chats import Chat
from tests.daemons import Daemon, Loop, open_daemon
from tests.plugins.bub.bridges import Bridge, light_workers, open_bridge

pytestmark = pytest.mark.anyio

WORKER = Chat("telegram", "1").agent_id
AGENT = [sys.executable, str(Path(__file__).with_name("settings_agent.py"))]
MOOD = '{"mood": "good"}'


def settings_of(**more: object) -> dict[str, object]:
    return light_workers(**{"workers.default.agent": AGENT, **more})


async def configure(bridge: Bridge, to: str, sender: str = "tg:1", **content: Any) -> Ack:
    payload = {"type": "configure", "content": content}
    [ack] = (await bridge.client.send(to, payload, sender=sender)).acks
    return ack


async def configure_all(bridge: Bridge) -> None:
    """Have the chat configure its worker, directly, three times."""
    await bridge.spawn("1")
    assert (await configure(bridge, WORKER, settings={"mood": "bad", "x": 1})).success
    assert (await configure(bridge, WORKER, settings={"mood": "good", "x": None})).success
    assert (await configure(bridge, WORKER, talkto="tg:elsewhere")).success


async def check(bridge: Bridge, text: str = "hello") -> None:
    number = len(bridge.replies("elsewhere")) + 1
    await bridge.say(WORKER, "elsewhere", text)
    assert await bridge.reply("elsewhere", number) == MOOD
    shown = await bridge.call("agents.show", clientId=WORKER)
    assert (shown["settings"], shown["agent"]["talkto"]) == ({"mood": "good"}, "tg:elsewhere")


@pytest.mark.parametrize("policy", ["open", "strict"])
async def test_what_a_chat_configures_at_its_worker_lasts_through_stop_and_start(
    loop: Loop, policy: str
) -> None:
    with open_daemon(loop, settings_of(policy=policy)) as daemon:
        async with open_bridge(daemon) as bridge:
            await configure_all(bridge)
            await check(bridge)
            await bridge.call("agents.stop", clientId=WORKER)
            await check(bridge)
            await bridge.call("agents.restart", clientId=WORKER)
            await check(bridge)


async def test_what_a_chat_configures_at_its_worker_lasts_through_a_crash(loop: Loop) -> None:
    with open_daemon(loop, settings_of()) as daemon:
        async with open_bridge(daemon) as bridge:
            await configure_all(bridge)
            await check(bridge, "die")
            await bridge.event("restarted")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("when_bus_stops", ["keep", "stop"])
async def test_what_a_chat_configures_at_its_worker_lasts_through_the_end_of_the_bus(
    loop: Loop, when_bus_stops: str, end: signal.Signals
) -> None:
    settings = settings_of(**{"agents.when_bus_stops": when_bus_stops})
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            await configure_all(bridge)
            end_of(daemon, end)
        daemon.start_again(loop, settings)
        async with open_bridge(daemon) as bridge:
            await bridge.call("agents.list")  # it is known which workers run
            await bridge.spawn("1")
            await check(bridge)


def end_of(daemon: Daemon, end: signal.Signals) -> None:
    daemon.signal(end)
    daemon.wait()


async def test_both_ways_to_configure_change_the_same_settings(loop: Loop) -> None:
    with open_daemon(loop, settings_of()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            await configure(bridge, WORKER, settings={"a": 1, "b": 1})
            await configure(bridge, "agent:system", settings={"b": 2, "c": 2})
            await configure(bridge, WORKER, settings={"c": 3})
            await configure(bridge, "agent:system", settings={"a": None})
            await bridge.route("1", "hello")
            assert await bridge.reply("1") == '{"b": 2, "c": 3}'
            shown = await bridge.call("agents.show", clientId=WORKER)
            assert shown["settings"] == {"b": 2, "c": 3}


async def test_settings_of_a_session_are_limited(loop: Loop) -> None:
    with open_daemon(loop, settings_of()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            for to in (WORKER, "agent:system"):
                ack = await configure(bridge, to, settings={"x": "y" * 70_000})
                assert (ack.success, ack.message) == (
                    False,
                    "configure: settings over 65536 bytes",
                )
            shown = await bridge.call("agents.show", clientId=WORKER)
            assert shown["settings"] == {}


async def test_a_report_of_an_unknown_agent_is_acked_and_changes_nothing(loop: Loop) -> None:
    with open_daemon(loop, settings_of()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            content = {"event": "configured", "data": {"talkto": "tg:thief"}}
            payload = {"type": "agent_event", "content": content}
            [ack] = (await bridge.client.send("agent:system", payload, sender="agent:x")).acks
            assert ack.success
            assert (await bridge.agent())["talkto"] == "tg:1"
