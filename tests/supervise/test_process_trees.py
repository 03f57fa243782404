"""No orphans: what a worker has started ends with it, however far it ran away."""

from __future__ import annotations

import os
import signal

import pytest

from tests.supervise.conftest import MakeLaunch, MakeSpawner
from tests.supervise.processes import Told, alive, is_alive
from tests.supervise.test_life import STAYS, next_report

pytestmark = pytest.mark.anyio

# A child; a daemon: other session, no parent, no environment, no open files.
RUNS_AWAY = (
    'sleep 1000 & echo $! > "$TOLD"; '
    'setsid env -i sh -c "sleep 1000 & echo \\$! > $TOLD" > /dev/null 2>&1 < /dev/null; '
)
STAYS_WITH_TREE = f"{RUNS_AWAY} {STAYS}"


async def test_children_and_daemons_of_a_worker_are_gone_when_it_has_been_stopped(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        other = await spawner.start(launch(STAYS, "agent:other"))
        assert await told.next_pid() == other.pid
        worker = await spawner.start(launch(STAYS_WITH_TREE, stop_seconds=0.5))
        tree = [await told.next_pid() for _ in range(3)]
        assert alive(tree) == tree
        await worker.stop()
        assert not alive(tree)
        assert other.pid is not None
        assert is_alive(other.pid)


async def test_what_a_dead_worker_has_started_is_gone_before_it_is_started_again(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        await spawner.start(launch(STAYS_WITH_TREE, restart_seconds=0.01))
        tree = [await told.next_pid() for _ in range(3)]
        os.kill(tree[-1], signal.SIGKILL)
        again = [await told.next_pid() for _ in range(3)]
        assert not alive(tree)
        assert alive(again) == again


async def test_the_process_tree_of_a_worker_that_ended_well_is_gone(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        worker = await spawner.start(launch(f"{RUNS_AWAY} exit 0"))
        tree = [await told.next_pid() for _ in range(2)]
        assert (await next_report(worker)).kind == "stopped"
        assert not alive(tree)


async def test_everything_is_gone_after_the_spawner_is_left(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    tree = []
    async with make_spawner(stop_seconds=0.5) as spawner:
        for number in range(5):
            wanted = launch(STAYS_WITH_TREE, f"agent:w{number}", stop_seconds=0.5)
            await spawner.start(wanted)
            tree += [await told.next_pid() for _ in range(3)]
    assert not alive(tree)
