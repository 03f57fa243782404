"""The guard of a user's units: if it dies, its workers end, and the next start brings it back."""

from __future__ import annotations

import signal

import anyio
import pytest

from busd.supervise.worker import Report
from tests.supervise.conftest import MakeLaunch, MakeSpawner
from tests.supervise.processes import Told, is_alive, wait_for_end
from tests.supervise.test_life import STAYS, all_reports
from tests.systemd.managers import UserManager

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("kind", ["systemd"])]


STUBBORN = "trap '' TERM; echo $$ > \"$TOLD\"; while :; do sleep 1000; done"


@pytest.mark.parametrize("when_bus_stops", ["stop", "keep"])
@pytest.mark.parametrize("how", [("stop",), ("kill", f"--signal={signal.SIGKILL.name}")])
async def test_a_guard_that_died_is_started_again_for_the_next_worker(
    make_spawner: MakeSpawner,
    launch: MakeLaunch,
    told: Told,
    user_manager: UserManager,
    when_bus_stops: str,
    how: tuple[str, ...],
) -> None:
    async with make_spawner(when_bus_stops=when_bus_stops) as spawner:
        worker = await spawner.start(launch(STAYS))
        pid = await told.next_pid()
        guard = user_manager.show(worker.unit, "BindsTo")
        user_manager.systemctl(*how, guard)
        await wait_for_end(pid)
        told_of = (await all_reports(worker))[-1]
        assert told_of == Report("failed", f"systemd ended it with its guard, {guard}")
        again = await spawner.start(launch(STAYS))
        assert is_alive(await told.next_pid())
        second = user_manager.show(again.unit, "BindsTo")
        assert user_manager.show(second, "ActiveState") == "active"
        user_manager.systemctl("stop", second)  # it guards as the first one did
        assert (await all_reports(again))[-1].kind == "failed"
        if when_bus_stops == "keep":
            await (await spawner.start(launch(STAYS))).stop()


async def test_workers_that_start_at_once_share_the_guard_that_replaces_a_dead_one(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told, user_manager: UserManager
) -> None:
    async with make_spawner() as spawner:
        first = await spawner.start(launch(STUBBORN, "agent:first", stop_seconds=2.0))
        await told.next_pid()
        guard = user_manager.show(first.unit, "BindsTo")
        user_manager.systemctl("stop", "--no-block", guard)  # which waits for the first to end
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(spawner.start, launch(STAYS, f"agent:w{number}"))
        pids = [await told.next_pid() for _ in range(5)]
        assert (await all_reports(first))[-1].kind == "failed"
        assert all(map(is_alive, pids))
