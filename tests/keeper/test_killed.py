"""kill -9 of the keeper, of its reaper, or of all of our processes: nothing of a worker is left."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from busd.keeper.control_group import open_group
from tests.keeper.keepers import keepers, parent_of, read_proc, reaper_of
from tests.supervise.conftest import MakeLaunch, MakeSpawner, StartDaemon
from tests.supervise.processes import Told, alive, is_alive, wait_for_end
from tests.supervise.test_life import STAYS
from tests.supervise.test_process_trees import STAYS_WITH_TREE

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", ["subprocess"])
@pytest.mark.parametrize("when_bus_stops", ["stop", "keep"])
@pytest.mark.parametrize("is_keeper_first", [True, False])
async def test_no_process_is_left_when_the_daemon_and_its_keeper_are_killed_together(
    start_daemon: StartDaemon,
    launch: MakeLaunch,
    told: Told,
    state: Path,
    tmp_path: Path,
    when_bus_stops: str,
    is_keeper_first: bool,
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush-hush\n")
    wanted = launch(STAYS_WITH_TREE, credentials={"key": str(secret)})
    daemon = start_daemon(wanted, when_bus_stops=when_bus_stops)
    tree = [await told.next_pid() for _ in range(3)]
    (keeper,) = keepers(state)
    reaper = await reaper_of(keeper)
    both = [keeper, daemon.process.pid]
    for pid in both if is_keeper_first else reversed(both):
        os.kill(pid, signal.SIGKILL)
    for pid in [keeper, *tree, reaper]:
        await wait_for_end(pid)
    assert not told.left_behind()
    assert not (state / "credentials").exists()


@pytest.mark.parametrize("kind", ["subprocess"])
async def test_no_process_is_left_though_the_reaper_was_killed_before_the_keeper(
    start_daemon: StartDaemon, launch: MakeLaunch, told: Told, state: Path
) -> None:
    daemon = start_daemon(launch(STAYS_WITH_TREE))
    tree = [await told.next_pid() for _ in range(3)]
    (keeper,) = keepers(state)
    reaper = await reaper_of(keeper)
    os.kill(reaper, signal.SIGKILL)
    await wait_for_end(reaper)
    assert alive([keeper, *tree]) == [keeper, *tree]
    os.kill(keeper, signal.SIGKILL)
    daemon.kill()
    for pid in tree:
        await wait_for_end(pid)


@pytest.mark.parametrize("kind", ["subprocess"])
async def test_a_reaper_ends_with_its_keeper_and_not_before(
    launch: MakeLaunch, make_spawner: MakeSpawner, told: Told, state: Path
) -> None:
    async with make_spawner() as spawner:
        await spawner.start(launch(STAYS))
        pid = await told.next_pid()
        (keeper,) = keepers(state)
        reaper = await reaper_of(keeper)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(reaper, number)  # as a terminal, or a host that goes down, does to all
        assert is_alive(pid)
        assert await reaper_of(keeper) == reaper
    assert not is_alive(reaper)


@pytest.mark.parametrize("kind", ["subprocess"])
@pytest.mark.parametrize("has_groups", [True, False])
async def test_what_is_left_when_all_of_our_processes_were_killed_is_ended_by_the_next_daemon(
    start_daemon: StartDaemon,
    launch: MakeLaunch,
    told: Told,
    state: Path,
    has_groups: bool,
) -> None:
    """Found by its control group; without one, only what has not cleared its environment."""
    first = start_daemon(launch(STAYS_WITH_TREE), has_groups=has_groups, when_bus_stops="keep")
    tree = [await told.next_pid() for _ in range(3)]
    (keeper,) = keepers(state)
    ours = [await reaper_of(keeper), keeper, parent_of(tree[-1])]
    for pid in ours:
        os.kill(pid, signal.SIGSTOP)  # nobody shall notice that another one ends
    for pid in (first.process.pid, *ours):
        os.kill(pid, signal.SIGKILL)
    for pid in (*ours, tree[-1]):
        await wait_for_end(pid)
    assert alive(tree) == tree[:-1]  # nobody is there who could end them
    second = start_daemon(launch(STAYS), has_groups=has_groups)
    await told.next_pid()
    forgotten = alive(tree)
    second.kill()
    for pid in forgotten:
        os.kill(pid, signal.SIGKILL)
    group = open_group("test")
    has_cleared = [] if has_groups and group.can_be_entered else [tree[1]]
    group.remove()
    assert forgotten == has_cleared


@pytest.mark.parametrize("kind", ["subprocess"])
async def test_no_process_is_left_though_the_state_directory_was_removed_before(
    start_daemon: StartDaemon, launch: MakeLaunch, told: Told, state: Path
) -> None:
    daemon = start_daemon(launch(STAYS_WITH_TREE, stop_seconds=0.5), stop_seconds=0.5)
    tree = [await told.next_pid() for _ in range(3)]
    left_keepers = keepers(state)
    shutil.rmtree(state)
    daemon.kill()
    for pid in [*tree, *left_keepers]:
        await wait_for_end(pid)


@pytest.mark.parametrize("kind", ["subprocess"])
async def test_a_reaper_is_not_found_by_our_name_as_the_keeper_is(
    launch: MakeLaunch, make_spawner: MakeSpawner, told: Told, state: Path
) -> None:
    """`pkill -9 -f busd` ends the bus and the keeper; then the reaper has to be there."""
    async with make_spawner() as spawner:
        await spawner.start(launch(STAYS))
        await told.next_pid()
        (keeper,) = keepers(state)
        reaper = await reaper_of(keeper)
        assert b"busd" in read_proc(keeper, "cmdline").split(b"\0", 1)[1]
        assert b"busd" not in read_proc(reaper, "cmdline").split(b"\0", 1)[1]
