"""The bootstrap of a chat where workers are units of a real service manager."""

from __future__ import annotations

import ctypes
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import anyio
import anyio.to_thread
import pytest

from busd_plugins.bub.chats import Chat
from tests.daemons import PATIENCE_SECONDS, Daemon, Loop, open_daemon, serve_args
from tests.plugins.bub.bridges import light_workers, next_line, open_bridge
from tests.plugins.bub.test_names import POSERS, check_posers
from tests.supervise.processes import wait_for_end
from tests.systemd.managers import (
    NoManager,
    UserManager,
    has_own_mounts,
    open_journal,
    open_user_manager,
)

pytestmark = pytest.mark.anyio

WORKER = Chat("telegram", "1").agent_id
SYSTEMD = light_workers(**{"workers.default.spawner": "systemd"})


@pytest.fixture(scope="module")
def manager() -> Iterator[UserManager]:
    with ExitStack() as stack:
        try:
            yield stack.enter_context(open_user_manager())
        except NoManager as reason:
            pytest.skip(str(reason))


@pytest.fixture
def journal(manager: UserManager) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(open_journal(manager))
        except NoManager as reason:
            pytest.skip(str(reason))
        yield


@pytest.fixture
def before(manager: UserManager, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What a daemon does first so that it runs where the manager does."""
    for name, value in manager.environment().items():
        monkeypatch.setenv(name, value)
    return partial(enter_mounts_of, manager.process.pid) if has_own_mounts() else lambda: None


def enter_mounts_of(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    assert libc.setns(descriptor, 0) == 0, os.strerror(ctypes.get_errno())
    os.close(descriptor)


async def test_a_message_starts_a_unit_and_is_answered_by_it(
    loop: Loop, manager: UserManager, before: Callable[[], None]
) -> None:
    with open_daemon(loop, SYSTEMD, before=before) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "hello")
            assert await bridge.reply("1") == f"{WORKER}: hello"
            await bridge.event("spawned")  # the manager says so, perhaps after the answer
            agent = await bridge.agent()
            assert agent["spawner"] == "systemd"
            assert manager.show(agent["systemdUnit"], "MainPID") == str(agent["pid"])
            logs = await bridge.call("agents.logs", clientId=WORKER)
            assert "light agent: echo" in [line["text"] for line in logs["lines"]]
    assert manager.show(agent["systemdUnit"], "ActiveState") == "inactive"


async def test_a_unit_cannot_pass_for_that_of_another_chat(
    loop: Loop, manager: UserManager, before: Callable[[], None]
) -> None:
    settings = {**POSERS, "workers.default.spawner": "systemd"}
    with open_daemon(loop, settings, before=before) as daemon:
        async with open_bridge(daemon) as bridge:
            await check_posers(bridge)


async def test_what_a_unit_prints_into_the_journal_can_be_read_and_followed(
    loop: Loop, manager: UserManager, journal: None, before: Callable[[], None]
) -> None:
    with open_daemon(loop, SYSTEMD, before=before) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "hello")
            await bridge.event("spawned")
            shown = (await bridge.call("agents.show", clientId=WORKER))["agent"]
            assert shown["log"] == f"journal, unit {shown['systemdUnit']}"
            first = await next_line(bridge, WORKER)
            await bridge.call("agents.restart", clientId=WORKER)
            second = await next_line(bridge, WORKER, first["id"])
            assert second["text"] == first["text"] == "light agent: echo"
            await bridge.call("agents.stop", clientId=WORKER)
        daemon.stop()
        daemon.start_again(loop, SYSTEMD, before)
        async with open_bridge(daemon) as bridge:
            lines = (await bridge.call("agents.logs", clientId=WORKER))["lines"]
            assert lines == [first, second]
        assert not list(daemon.folder.rglob("worker.log"))


async def test_other_settings_hold_after_a_reload(
    loop: Loop, manager: UserManager, before: Callable[[], None]
) -> None:
    with open_daemon(loop, SYSTEMD, before=before, log_level="info") as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            assert manager.show("busd-agents.slice", "TasksMax") == "infinity"
            more = {"agents.tasks_max": 321, "agents.when_bus_stops": "keep"}
            serve_args(daemon.folder, loop, {**SYSTEMD, **more})  # writes them
            daemon.signal(signal.SIGHUP)
            with anyio.fail_after(PATIENCE_SECONDS):
                while "agents.not_reloaded" not in daemon.log():
                    await anyio.sleep(0.02)  # the log is all that says so
            assert manager.show("busd-agents.slice", "TasksMax") == "321"
            assert "restart them to keep them" in daemon.log()
            await bridge.call("agents.stop", clientId=WORKER)


async def test_a_unit_killed_while_it_owes_an_ack_is_restarted_and_the_message_answered_once(
    loop: Loop, before: Callable[[], None]
) -> None:
    with open_daemon(loop, SYSTEMD, before=before) as daemon:
        async with open_bridge(daemon) as bridge:
            ack = await bridge.route("1", "die")
            assert ack.success, ack.message
            await bridge.event("restarted")
            assert bridge.replies("1") == [f"{WORKER}: die"]


async def test_chats_are_answered_after_the_guard_died_and_the_next_one_guards_as_well(
    loop: Loop, manager: UserManager, before: Callable[[], None]
) -> None:
    with open_daemon(loop, SYSTEMD, before=before) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "hello")
            await bridge.event("spawned")  # the manager says so, perhaps after the answer
            guard = manager.show((await bridge.agent())["systemdUnit"], "BindsTo")
            manager.systemctl("kill", "--signal=SIGKILL", guard)
            assert guard in (await bridge.event("failed"))["reason"]
            for chat in ("1", "2"):
                ack = await bridge.route(chat, "pid")
                assert ack.success, ack.message
            pids = [int(await bridge.reply("1", 2)), int(await bridge.reply("2"))]
            daemon.signal(signal.SIGKILL)
            daemon.wait()
            for pid in pids:
                await wait_for_end(pid)
        daemon.start_again(loop, SYSTEMD, before)


async def test_the_doctor_sees_that_the_guard_of_the_workers_died(
    loop: Loop, manager: UserManager, before: Callable[[], None]
) -> None:
    with open_daemon(loop, SYSTEMD, before=before) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "hello")
            await bridge.event("spawned")  # the manager says so, perhaps after the answer
            guard = manager.show((await bridge.agent())["systemdUnit"], "BindsTo")
            assert f"ok       guard: {guard} runs" in await doctor(manager, daemon)
            manager.systemctl("kill", "--signal=SIGKILL", guard)
            await bridge.event("failed")
            words = f"warning  guard: {guard} has ended, and systemd ended the workers with it"
            assert words in await doctor(manager, daemon)
            await bridge.route("1", "hello")
            assert "ok       guard: " in await doctor(manager, daemon)
        daemon.stop()
        assert " guard: " not in await doctor(manager, daemon)


async def doctor(manager: UserManager, daemon: Daemon) -> str:
    """Return what `busd doctor` says of a daemon with a state directory of its own."""
    config = daemon.folder / "doctor.toml"
    config.write_text(f"state = {json.dumps(str(daemon.folder / 'state'))}\n")
    words = ("doctor", "--user", "--config", str(config), "--address", f"unix:{daemon.path}")
    return (await anyio.to_thread.run_sync(manager.busd, *words)).stdout


async def test_units_that_are_to_be_kept_are_found_again_by_the_next_bus(
    loop: Loop, before: Callable[[], None]
) -> None:
    settings = {**SYSTEMD, "agents.when_bus_stops": "keep"}
    with open_daemon(loop, settings, before=before) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "pid")
            pid = await bridge.reply("1")
            daemon.signal(signal.SIGKILL)
            daemon.wait()
        daemon.start_again(loop, settings, before)
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "pid")
            assert await bridge.reply("1") == pid
            await bridge.call("agents.stop", clientId=WORKER)
