"""The keeper's own life: one for all workers, replaced when it was killed, refused to others."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from busd.supervise.subprocess import SubprocessSpawner
from busd.supervise.worker import Report, SpawnFailed, SupervisorSettings
from tests.keeper.keepers import keepers
from tests.supervise.conftest import MakeLaunch, MakeSpawner
from tests.supervise.processes import Told, alive, is_alive, patience, wait_for_end
from tests.supervise.test_life import STAYS
from tests.supervise.test_process_trees import STAYS_WITH_TREE

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", ["subprocess"])
async def test_a_killed_keeper_takes_all_with_it_and_the_next_worker_gets_a_new_one(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told, state: Path
) -> None:
    async with make_spawner() as spawner:
        worker = await spawner.start(launch(STAYS_WITH_TREE))
        tree = [await told.next_pid() for _ in range(3)]
        (keeper,) = keepers(state)
        os.kill(keeper, signal.SIGKILL)
        with patience():
            reports = [report async for report in worker.reports()]
        assert reports == [Report("failed", "the keeper of the workers was killed")]
        assert not alive(tree)
        assert worker.pid is None
        await spawner.start(launch(STAYS))
        assert is_alive(await told.next_pid())
        assert keepers(state) not in ([], [keeper])
    assert not keepers(state)


@pytest.mark.parametrize("kind", ["subprocess"])
async def test_there_is_no_keeper_before_the_first_worker_and_one_for_all(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told, state: Path
) -> None:
    async with make_spawner() as spawner:
        assert not keepers(state)
        for number in range(3):
            await spawner.start(launch(STAYS, f"agent:w{number}"))
        assert len(keepers(state)) == 1
    assert not keepers(state)


@pytest.mark.parametrize("kind", ["subprocess"])
async def test_a_second_daemon_with_the_same_state_is_refused_and_harms_nobody(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        worker = await spawner.start(launch(STAYS))
        with pytest.raises(SpawnFailed, match=r"^another daemon has these workers$"):
            await make_spawner().__aenter__()
        assert worker.pid is not None
        assert is_alive(worker.pid)


async def test_a_keeper_that_hangs_is_killed_and_the_workers_with_it(
    launch: MakeLaunch, told: Told, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("busd.supervise.subprocess._GRACE_SECONDS", 0.2)
    spawner = SubprocessSpawner(state=state, settings=SupervisorSettings(stop_seconds=0.1))
    async with spawner:
        worker = await spawner.start(launch(STAYS, stop_seconds=0.1))
        pid = await told.next_pid()
        (keeper,) = keepers(state)
        os.kill(keeper, signal.SIGSTOP)
        await worker.stop()
        await wait_for_end(pid)
    assert not keepers(state)


@pytest.mark.parametrize("kind", ["subprocess"])
async def test_a_keeper_that_cannot_start_says_why(
    make_spawner: MakeSpawner, launch: MakeLaunch, state: Path
) -> None:
    async with make_spawner() as spawner:
        (state / "keeper.sock").mkdir()
        with pytest.raises(SpawnFailed) as problem:
            await spawner.start(launch(STAYS))
    said = "the keeper of the workers did not start: [Errno 21] Is a directory: "
    assert str(problem.value) == f"{said}'{state}/keeper.sock'"
