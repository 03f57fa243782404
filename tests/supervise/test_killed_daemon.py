"""kill -9 of the daemon: its workers end, or wait for the next one, as configured."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.keeper.keepers import keepers
from tests.supervise.conftest import MakeLaunch, MakeSpawner, StartDaemon
from tests.supervise.processes import Told, alive, is_alive, wait_for_end
from tests.supervise.test_life import STAYS
from tests.supervise.test_process_trees import STAYS_WITH_TREE

pytestmark = pytest.mark.anyio


async def test_no_process_is_left_when_the_daemon_is_killed(
    start_daemon: StartDaemon, launch: MakeLaunch, told: Told, state: Path
) -> None:
    daemon = start_daemon(launch(STAYS_WITH_TREE, stop_seconds=0.5), stop_seconds=0.5)
    tree = [await told.next_pid() for _ in range(3)]
    left_keepers = keepers(state)
    daemon.kill()
    for pid in [*tree, *left_keepers]:
        await wait_for_end(pid)
    assert not told.left_behind()


async def test_a_kept_worker_is_adopted_by_the_next_daemon(
    start_daemon: StartDaemon, launch: MakeLaunch, make_spawner: MakeSpawner, told: Told
) -> None:
    daemon = start_daemon(launch(STAYS_WITH_TREE, restart_seconds=0.01), when_bus_stops="keep")
    tree = [await told.next_pid() for _ in range(3)]
    daemon.kill()
    async with make_spawner(when_bus_stops="keep") as spawner:
        worker = await spawner.adopt("agent:w", daemon.workers[0]["unit"])
        assert worker is not None
        assert worker.pid == tree[-1]
        assert alive(tree) == tree
        os.kill(tree[-1], signal.SIGKILL)
        again = [await told.next_pid() for _ in range(3)]
        assert not alive(tree)
        await worker.stop()
        assert not alive(again)
        assert await spawner.adopt("agent:w", worker.unit) is None


async def test_a_kept_worker_whose_unit_nobody_wrote_down_is_adopted(
    start_daemon: StartDaemon, launch: MakeLaunch, make_spawner: MakeSpawner, told: Told
) -> None:
    daemon = start_daemon(launch(STAYS), when_bus_stops="keep")
    pid = await told.next_pid()
    daemon.kill()
    async with make_spawner(when_bus_stops="keep") as spawner:
        assert await spawner.adopt("agent:other", "") is None
        worker = await spawner.adopt("agent:w", "")
        assert worker is not None
        assert (worker.pid, worker.unit) == (pid, daemon.workers[0]["unit"])
        await worker.stop()


async def test_a_kept_worker_is_left_by_one_daemon_and_found_by_the_next(
    launch: MakeLaunch, make_spawner: MakeSpawner, told: Told
) -> None:
    async with make_spawner(when_bus_stops="keep") as spawner:
        unit = (await spawner.start(launch(STAYS))).unit
        pid = await told.next_pid()
    assert is_alive(pid)
    async with make_spawner(when_bus_stops="keep") as spawner:
        assert await spawner.adopt("agent:stranger", unit) is None
        worker = await spawner.adopt("agent:w", unit)
        assert worker is not None
        assert worker.pid == pid
        assert await worker.last_lines() == []
        await worker.stop()


async def test_a_kept_worker_that_nobody_adopts_ends(
    launch: MakeLaunch, make_spawner: MakeSpawner, told: Told
) -> None:
    async with make_spawner(when_bus_stops="keep", adopt_seconds=5.0) as spawner:
        await spawner.start(launch(STAYS))
        pid = await told.next_pid()
    async with make_spawner(when_bus_stops="keep", adopt_seconds=0.1):
        await wait_for_end(pid)


async def test_kept_workers_end_when_no_daemon_comes_back(
    start_daemon: StartDaemon, launch: MakeLaunch, told: Told, state: Path
) -> None:
    daemon = start_daemon(launch(STAYS_WITH_TREE), when_bus_stops="keep", adopt_seconds=0.3)
    tree = [await told.next_pid() for _ in range(3)]
    left_keepers = keepers(state)
    daemon.kill()
    for pid in [*tree, *left_keepers]:
        await wait_for_end(pid)


async def test_the_next_daemon_waits_until_the_workers_of_the_last_are_gone(
    start_daemon: StartDaemon, launch: MakeLaunch, make_spawner: MakeSpawner, told: Told
) -> None:
    stubborn = "trap '' TERM; echo $$ > \"$TOLD\"; while :; do sleep 1000; done"
    daemon = start_daemon(launch(stubborn, stop_seconds=2.0), stop_seconds=2.0)
    pid = await told.next_pid()
    daemon.kill()
    async with make_spawner() as spawner:
        assert not is_alive(pid)
        assert await spawner.adopt("agent:w", daemon.workers[0]["unit"]) is None
        await spawner.start(launch(STAYS))
        assert is_alive(await told.next_pid())
