"""Workers that try to get away from their supervisor, with what the kernel lets any process do."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.keeper.keepers import keepers, parent_of, reaper_of
from tests.supervise.conftest import SECRET, MakeLaunch, MakeSpawner, StartDaemon
from tests.supervise.processes import Told, alive, environment_of, is_alive, wait_for_end
from tests.supervise.test_life import STAYS
from tests.supervise.test_process_trees import STAYS_WITH_TREE

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("kind", ["subprocess"])]

# Other limits, another session, no parent, no environment, no file of its parent's: nothing of it
# tells where it comes from.
RUNS_AWAY = """
import os, resource, sys
told = os.environ["TOLD"]
if os.fork() == 0:
    resource.setrlimit(resource.RLIMIT_RTTIME, (12345, 12345))
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 100)
        say = "echo $$ > " + told + "; while :; do sleep 1000; done"
        os.execve("/bin/sh", ["sh", "-c", say], {"PATH": os.environ["PATH"]})
    os._exit(0)
os.wait()
"""
RUNAWAY = f"{sys.executable} -I -S -c '{RUNS_AWAY}'; {STAYS}"


async def both(told: Told) -> list[int]:
    """Return the pids of the runaway and of the worker, in whatever order they say so."""
    return [await told.next_pid() for _ in range(2)]


async def test_a_process_that_shed_its_limits_and_its_parents_ends_with_its_worker(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        other = await spawner.start(launch(STAYS, "agent:other"))
        assert await told.next_pid() == other.pid
        worker = await spawner.start(launch(RUNAWAY, stop_seconds=0.5))
        processes = await both(told)
        assert alive(processes) == processes
        await worker.stop()
        assert not alive(processes)
        assert other.pid is not None
        assert is_alive(other.pid)


@pytest.mark.parametrize("has_groups", [True, False])
@pytest.mark.parametrize("killed", ["daemon", "daemon and keeper", "all but the reaper"])
async def test_a_process_that_shed_its_limits_and_its_parents_ends_with_the_daemon(
    start_daemon: StartDaemon,
    launch: MakeLaunch,
    told: Told,
    state: Path,
    killed: str,
    has_groups: bool,
) -> None:
    wanted = launch(RUNAWAY, stop_seconds=0.5)
    daemon = start_daemon(wanted, has_groups=has_groups, stop_seconds=0.5)
    processes = await both(told)
    (keeper,) = keepers(state)
    await reaper_of(keeper)
    init = parent_of(daemon.workers[0]["pid"])
    also = {"daemon": [], "daemon and keeper": [keeper], "all but the reaper": [init, keeper]}
    for pid in also[killed]:
        os.kill(pid, signal.SIGKILL)
    daemon.kill()
    for pid in processes:
        await wait_for_end(pid)


async def test_a_worker_that_kills_its_init_process_loses_all_of_its_processes(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        worker = await spawner.start(launch(RUNAWAY, restart_seconds=0.01))
        processes = await both(told)
        assert worker.pid is not None
        os.kill(parent_of(worker.pid), signal.SIGKILL)
        again = await both(told)
        assert not alive(processes)
        await worker.stop()
        assert not alive(again)


async def test_a_worker_that_stops_its_init_process_is_ended_all_the_same(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        worker = await spawner.start(launch(RUNAWAY, stop_seconds=0.1))
        processes = await both(told)
        assert worker.pid is not None
        init = parent_of(worker.pid)
        os.kill(init, signal.SIGSTOP)
        await worker.stop()
        assert not alive([*processes, init])


async def test_no_secret_of_the_daemon_is_in_the_environment_of_what_it_starts(
    start_daemon: StartDaemon, launch: MakeLaunch, told: Told, state: Path
) -> None:
    daemon = start_daemon(launch(STAYS_WITH_TREE))
    tree = [await told.next_pid() for _ in range(3)]
    (keeper,) = keepers(state)
    ours = [keeper, await reaper_of(keeper), parent_of(daemon.workers[0]["pid"])]
    assert any(SECRET.encode() in each for each in environment_of(daemon.process.pid))
    for pid in (*ours, *tree):
        assert not any(SECRET.encode() in each for each in environment_of(pid))
    daemon.kill()
    for pid in (*ours, *tree):
        await wait_for_end(pid)
