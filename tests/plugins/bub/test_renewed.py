"""Settings of workers that change while they run: a reload reaches them."""

from __future__ import annotations

import json
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from busd.cli.agents import agent_rows
from busd_plugins.bub.chats import Chat
from tests.daemons import PATIENCE_SECONDS, Daemon, Loop, open_daemon
from tests.plugins.bub.bridges import Bridge, light_workers, open_bridge

pytestmark = pytest.mark.anyio

WORKER = Chat("telegram", "1").agent_id
MOOD = "workers.default.environment.MOOD"
ASK = "env MOOD"
BEGIN = "echo begun; until [ -e go ]; do sleep 0.02; done; echo $MOOD"
KIT: dict[str, object] = {
    "workers.default.command": ["sh", "-c", BEGIN],
    "workers.default.stream": True,
    "workers.default.spawner": "subprocess",
}


def reload(daemon: Daemon, settings: dict[str, object]) -> None:
    every = {"policy": "open", **settings}
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in every.items())
    (daemon.folder / "busd.toml").write_text(text)
    daemon.signal(signal.SIGHUP)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(PATIENCE_SECONDS):
        while not await is_so():
            await anyio.sleep(0.02)  # nobody is told of it


async def record(bridge: Bridge) -> dict[str, Any]:
    shown: dict[str, Any] = await bridge.call("agents.show", clientId=WORKER)
    found: dict[str, Any] = shown["agent"]
    return found


async def test_an_idle_worker_is_restarted_with_the_settings_of_a_reload(loop: Loop) -> None:
    with open_daemon(loop, light_workers(**{MOOD: "old"})) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", ASK)
            assert await bridge.reply("1") == "old"
            reload(daemon, light_workers(**{MOOD: "new"}))
            await bridge.event("ready", 2)
            await bridge.route("1", ASK)
            assert await bridge.reply("1", 2) == "new"
            assert not (await record(bridge))["outdated"]


async def test_a_busy_worker_is_restarted_after_its_turn_and_listed_until_then(loop: Loop) -> None:
    with open_daemon(loop, {**KIT, MOOD: "old"}) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "hello")
            await bridge.wait_for(
                lambda _, payload: payload["content"].get("event") == "turn.delta"
            )
            reload(daemon, {**KIT, MOOD: "new"})

            async def is_outdated() -> bool:
                return bool((await record(bridge))["outdated"])

            await until(is_outdated)
            before = await record(bridge)
            assert [row[-1] for row in agent_rows([before])] == ["SETTINGS", "old"]
            (Path(before["workspace"]) / "go").touch()
            assert await bridge.reply("1") == "begun\nold"
            await bridge.event("ready", 2)
            await bridge.route("1", "hello")
            assert await bridge.reply("1", 2) == "begun\nnew"
            assert [row[-1] for row in agent_rows([await record(bridge)])][1] == "current"
            errors = [it for _, it in bridge.heard if it["content"].get("event") == "turn.error"]
            assert errors == []


async def test_a_worker_that_owes_an_ack_is_not_restarted(loop: Loop) -> None:
    settings = {"drain_seconds": 0.2}
    with open_daemon(loop, light_workers(**{MOOD: "old"}, **settings)) as daemon:
        async with open_bridge(daemon) as bridge, anyio.create_task_group() as tasks:
            for chat in ("1", "2"):
                await bridge.spawn(chat)
            first = await record(bridge)
            tasks.start_soon(bridge.say, WORKER, "1", "wait")
            await bridge.say(WORKER, "1", "hello")  # it has the one before this
            reload(daemon, light_workers(**{MOOD: "new"}, **settings))
            await bridge.event("ready", 3)  # the other one's
            after = await record(bridge)
            assert (after["pid"], after["outdated"]) == (first["pid"], True)
            tasks.cancel_scope.cancel()


async def test_settings_that_are_none_of_a_worker_do_not_restart_it(loop: Loop) -> None:
    more = {"workers.default.idle_seconds": 500.0, "workers.web.environment.MOOD": "new"}
    with open_daemon(loop, light_workers(**{MOOD: "old"}), log_level="info") as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            before = await record(bridge)
            reload(daemon, light_workers(**{MOOD: "old"}, **more))

            async def is_reloaded() -> bool:
                return "settings.reloaded" in daemon.log()

            await until(is_reloaded)
            after = await record(bridge)
            assert (after["pid"], after["outdated"]) == (before["pid"], False)
            assert "agent.renewed" not in daemon.log()


async def test_a_worker_that_was_kept_is_renewed_by_a_bus_with_other_settings(loop: Loop) -> None:
    kept = {"agents.when_bus_stops": "keep"}
    with open_daemon(loop, light_workers(**{MOOD: "old"}, **kept)) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", ASK)
            assert await bridge.reply("1") == "old"
            await bridge.event("spawned")
            assert daemon.stop() == 0
        daemon.start_again(loop, light_workers(**{MOOD: "new"}, **kept))
        async with open_bridge(daemon) as bridge:
            await bridge.event("spawned")
            await bridge.route("1", ASK)
            assert await bridge.reply("1") == "new"
            await bridge.call("agents.stop", clientId=WORKER)
