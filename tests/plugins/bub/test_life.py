"""The life of agents: workers and buses that end, by themselves or by force."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from tempfile import mkdtemp

import anyio
import pytest
from msgspec import UNSET

from busd import now
from busd_plugins.bub.chats import Chat
from busd_plugins.bub.sessions import Session, Sessions
from tests.daemons import PATIENCE_SECONDS, Loop, open_daemon
from tests.plugins.bub.bridges import Bridge, light_workers, next_line, open_bridge
from tests.supervise.processes import is_alive

pytestmark = pytest.mark.anyio

WORKER = Chat("telegram", "1").agent_id


async def until_gone(pid: int) -> None:
    """Wait until there is no such process."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while is_alive(pid):
            await anyio.sleep(0.02)  # the kernel tells only its parent


async def pid_of(bridge: Bridge) -> int:
    pid = (await bridge.agent())["pid"]
    assert isinstance(pid, int)
    return pid


async def test_a_worker_killed_while_it_owes_an_ack_is_restarted_and_the_message_answered_once(
    loop: Loop,
) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            ack = await bridge.route("1", "die")
            assert ack.success
            assert await bridge.reply("1") == f"{WORKER}: die"
            await bridge.event("restarted")
            await bridge.event("ready", 2)
            assert bridge.replies("1") == [f"{WORKER}: die"]


async def test_a_message_that_kills_its_worker_each_time_is_given_up(loop: Loop) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            ack = await bridge.route("1", "die always")
            assert (ack.success, ack.message) == (False, "peer left before it answered")
            assert ack.should_retry is UNSET
            assert len(bridge.events("exited")) <= 2
            assert (await bridge.route("1", "hello")).success


async def test_a_message_straight_to_a_worker_that_dies_over_it_may_be_sent_again(
    loop: Loop,
) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            ack = await bridge.say(WORKER, "1", "die")
            assert (ack.success, ack.message) == (False, "peer left before it answered")
            assert (ack.should_retry, ack.retry_seconds) == (True, 1.0)
            assert (await bridge.say(WORKER, "1", "die")).success
            assert await bridge.reply("1") == f"{WORKER}: die"


async def test_what_comes_after_a_kill_waits_behind_what_was_lost(loop: Loop) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge, anyio.create_task_group() as tasks:
            await bridge.spawn("1")
            for text in ("die", "after 1", "after 2"):
                tasks.start_soon(bridge.route, "1", text)
            await bridge.reply("1", 3)
            texts = ("die", "after 1", "after 2")
            assert bridge.replies("1") == [f"{WORKER}: {text}" for text in texts]


async def test_a_turn_whose_worker_is_killed_is_finished_by_the_next_one(loop: Loop) -> None:
    """Our own worker acks first and answers later: it remembers what it owes."""
    kill_once = "[ -e data/died ] || { touch data/died; kill -9 $PPID; }; cat"
    settings = {
        "workers.default.command": ["sh", "-c", kill_once],
        "workers.default.spawner": "subprocess",
        "workers.default.restart_seconds": 0.05,
    }
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "hello")
            await bridge.event("restarted")
            assert (await bridge.reply("1")).strip() == "hello"
            await bridge.route("1", "and now")
            assert (await bridge.reply("1", 2)).strip() == "and now"


async def test_a_bus_with_very_many_agents_starts(loop: Loop) -> None:
    folder = Path(mkdtemp(prefix="busd-test-"))
    (folder / "state").mkdir(mode=0o700)
    await write_sessions(folder / "state", 20_000)
    with open_daemon(loop, light_workers(), folder=folder) as daemon:
        async with open_bridge(daemon) as bridge:
            listed = await bridge.call("agents.list")
            assert (len(listed["agents"]), listed["total"]) == (1_000, 20_000)
            page = await bridge.call("agents.export")
            sessions = page["sessions"]
            while page.get("more"):
                assert page["more"] == 20_000 - len(sessions)
                page = await bridge.call("agents.export", after=max(sessions))
                sessions |= page["sessions"]
            assert len(sessions) == 20_000
            last = Chat("telegram", "19999").agent_id
            assert (await bridge.say(last, "19999", "hello")).success


async def test_an_agent_keeps_the_workspace_of_an_earlier_name(loop: Loop) -> None:
    folder = Path(mkdtemp(prefix="busd-test-"))
    state = folder / "state"
    state.mkdir(mode=0o700)
    await write_sessions(state, 2, "telegram:{}")
    with open_daemon(loop, light_workers(), folder=folder) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "env BUSD_WORKSPACE")
            assert await bridge.reply("1") == str(state / "workspaces/telegram:1")


async def write_sessions(state: Path, count: int, name: str = "telegram-{}") -> None:
    """Write the sessions of an earlier bus."""
    sessions = Sessions(state)
    for number in range(count):
        chat = Chat("telegram", str(number))
        sessions.note(
            Session(
                client_id=chat.agent_id,
                chat_id=chat.chat_id,
                channel=chat.channel,
                channel_type="telegram",
                talkto=chat.address,
                workspace=str(state / "workspaces" / name.format(number)),
                status="stopped",
                stopped_at=now(),
            )
        )
    await sessions.close()


async def test_an_idle_worker_is_stopped_and_the_next_message_starts_it_again(
    loop: Loop,
) -> None:
    settings = light_workers(**{"workers.default.idle_seconds": 0.4})
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "pid")
            first = int(await bridge.reply("1"))
            await bridge.event("stopped")
            await until_gone(first)
            assert (await bridge.agent())["status"] == "stopped"
            await bridge.say(WORKER, "1", "pid")
            assert int(await bridge.reply("1", 2)) != first


async def test_a_worker_that_owes_an_ack_is_not_idle(loop: Loop) -> None:
    settings = light_workers(**{"workers.default.idle_seconds": 0.2, "drain_seconds": 0.5})
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge, anyio.create_task_group() as tasks:
            await bridge.spawn("1")
            tasks.start_soon(bridge.say, WORKER, "1", "wait")
            with anyio.move_on_after(1):
                await bridge.event("stopped")
            assert not bridge.events("stopped")
            tasks.cancel_scope.cancel()


async def test_sessions_outlive_a_restart_and_their_agents_answer_again(loop: Loop) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "hello")
            await bridge.event("spawned")  # the keeper says so, perhaps after the answer
            before = await bridge.agent()
        assert daemon.stop() == 0
        await until_gone(before["pid"])
        daemon.start_again(loop, light_workers())
        async with open_bridge(daemon) as bridge:
            after = await bridge.agent()
            assert (after["status"], after["pid"]) == ("stopped", None)
            assert after["stoppedAt"] is not None
            assert after["createdAt"] == before["createdAt"]
            await bridge.say(WORKER, "1", "hello again")
            assert await bridge.reply("1") == f"{WORKER}: hello again"


async def test_no_worker_outlives_a_bus_that_was_killed(loop: Loop) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            pid = await pid_of(bridge)
            daemon.signal(signal.SIGKILL)
            daemon.wait()
        await until_gone(pid)
        daemon.start_again(loop, light_workers())
        async with open_bridge(daemon) as bridge:
            assert (await bridge.agent())["status"] == "stopped"


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
async def test_workers_that_are_to_be_kept_are_found_again_by_the_next_bus(
    loop: Loop, end: signal.Signals
) -> None:
    settings = light_workers(**{"agents.when_bus_stops": "keep"})
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "pid")
            await bridge.event("spawned")
            pid = await pid_of(bridge)
            daemon.signal(end)
            daemon.wait()
        assert is_alive(pid)
        daemon.start_again(loop, settings)
        async with open_bridge(daemon) as bridge:
            agent = await bridge.agent()
            assert agent["status"] in ("spawning", "running")
            await bridge.route("1", "pid")
            assert await bridge.reply("1") == str(pid)
            assert (await bridge.agent())["status"] == "running"
            await bridge.call("agents.stop", clientId=WORKER)
            await until_gone(pid)


async def test_agents_are_listed_shown_stopped_restarted_and_exported(loop: Loop) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            answer = await bridge.call(
                "agents.spawn", chatId="1", channel="telegram", channelType="telegram"
            )
            assert answer == {"success": True, "clientId": WORKER, "status": "running"}
            first_line = await next_line(bridge, WORKER)
            shown = await bridge.call("agents.show", clientId=WORKER)
            assert shown["agent"] == await bridge.agent()
            assert shown["lastLines"] == ["light agent: echo"]
            assert shown["agent"]["log"] == f"{shown['agent']['workspace']}/logs/worker.log"
            logs = await bridge.call("agents.logs", clientId=WORKER, lines=10)
            assert logs["lines"] == [first_line]
            first = await pid_of(bridge)
            restarted = await bridge.call("agents.restart", clientId=WORKER)
            assert restarted["status"] == "running"
            assert restarted["pid"] != first
            await until_gone(first)
            second_line = await next_line(bridge, WORKER, first_line["id"])
            assert second_line["text"] == first_line["text"] == "light agent: echo"
            logs = await bridge.call("agents.logs", clientId=WORKER, lines=10)
            assert logs["lines"] == [first_line, second_line]
            stopped = await bridge.call("agents.stop", clientId=WORKER)
            assert (stopped["status"], stopped["pid"]) == ("stopped", None)
            await until_gone(restarted["pid"])
            exported = await bridge.call("agents.export")
            assert exported["version"] == "1.0"
            assert exported["sessions"][WORKER]["status"] == "stopped"
            running = await bridge.call("agents.list", status="running")
            assert running == {"agents": [], "total": 0}


async def test_an_agent_hears_once_how_it_is_configured(loop: Loop) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            await bridge.call("agents.stop", clientId=WORKER)
            await bridge.say(WORKER, "1", "heard")
            assert await bridge.reply("1") == "configure tg_message"


async def test_an_agent_that_stopped_long_ago_is_forgotten_with_its_workspace(
    loop: Loop,
) -> None:
    settings = light_workers(**{"agents.keep_days": 0.3 / 86_400})
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            workspaces = daemon.folder / "state/workspaces"
            assert os.listdir(workspaces) == ["telegram-1"]  # noqa: PTH208 - a list of names
            await bridge.call("agents.stop", clientId=WORKER)
            with anyio.fail_after(PATIENCE_SECONDS):
                while os.listdir(workspaces) or (await bridge.call("agents.list"))["agents"]:  # noqa: PTH208
                    await anyio.sleep(0.05)  # nobody is told
            assert (await bridge.route("1", "hello")).success
