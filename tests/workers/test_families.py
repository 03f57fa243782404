"""No orphans: what a worker has started ends with it, however far it ran away."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from busd import AgentsSettings
from busd.keeper.tree import read_process
from busd_plugins.bub.spawner import Report, SpawnFailed
from busd_plugins.bub.subprocess_spawner import SubprocessSpawner
from tests.workers.conftest import MakeLaunch, MakeSpawner
from tests.workers.processes import Told, is_alive, patience, wait_for_end
from tests.workers.test_life import STAYS, next_report

pytestmark = pytest.mark.anyio

# A child; a daemon: other session, no parent, no environment, no open files.
RUNS_AWAY = (
    'sleep 1000 & echo $! > "$TOLD"; '
    'setsid env -i sh -c "sleep 1000 & echo \\$! > $TOLD" > /dev/null 2>&1 < /dev/null; '
)
STAYS_WITH_FAMILY = f"{RUNS_AWAY} {STAYS}"


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if is_alive(pid)]


async def test_children_and_daemons_of_a_worker_are_gone_when_it_has_been_stopped(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        other = await spawner.start(launch(STAYS, "agent:other"))
        assert await told.next_pid() == other.pid
        worker = await spawner.start(launch(STAYS_WITH_FAMILY, stop_seconds=0.5))
        family = [await told.next_pid() for _ in range(3)]
        assert alive(family) == family
        await worker.stop()
        assert not alive(family)
        assert other.pid is not None
        assert is_alive(other.pid)


async def test_what_a_dead_worker_has_started_is_gone_before_it_is_started_again(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        await spawner.start(launch(STAYS_WITH_FAMILY, restart_seconds=0.01))
        family = [await told.next_pid() for _ in range(3)]
        os.kill(family[-1], signal.SIGKILL)
        again = [await told.next_pid() for _ in range(3)]
        assert not alive(family)
        assert alive(again) == again


async def test_the_family_of_a_worker_that_ended_well_is_gone(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        worker = await spawner.start(launch(f"{RUNS_AWAY} exit 0"))
        family = [await told.next_pid() for _ in range(2)]
        assert (await next_report(worker)).kind == "stopped"
        assert not alive(family)


async def test_everything_is_gone_after_the_spawner_is_left(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    family = []
    async with make_spawner(stop_seconds=0.5) as spawner:
        for number in range(5):
            wanted = launch(STAYS_WITH_FAMILY, f"agent:w{number}", stop_seconds=0.5)
            await spawner.start(wanted)
            family += [await told.next_pid() for _ in range(3)]
    assert not alive(family)


def keepers(state: Path) -> list[int]:
    """Find the keeper by its state directory, which is its last argument.

    The init processes of workers are forked from it and have the same arguments.
    """
    found = []
    for path in Path("/proc").iterdir():
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(state).encode() in words and b"-c" in words and is_alive(int(path.name)):
            found.append(int(path.name))
    return [pid for pid in found if parent_of(pid) not in found]


def parent_of(pid: int) -> int:
    process = read_process(pid)
    return 0 if process is None else process.parent


@pytest.mark.parametrize("kind", ["subprocess"])
async def test_a_killed_keeper_takes_all_with_it_and_the_next_worker_gets_a_new_one(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told, state: Path
) -> None:
    async with make_spawner() as spawner:
        worker = await spawner.start(launch(STAYS_WITH_FAMILY))
        family = [await told.next_pid() for _ in range(3)]
        (keeper,) = keepers(state)
        os.kill(keeper, signal.SIGKILL)
        with patience():
            reports = [report async for report in worker.reports()]
        assert reports == [Report("failed", "the keeper of the workers was killed")]
        assert not alive(family)
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
    monkeypatch.setattr("busd_plugins.bub.subprocess_spawner._GRACE_SECONDS", 0.2)
    spawner = SubprocessSpawner(state=state, agents=AgentsSettings(stop_seconds=0.1))
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
