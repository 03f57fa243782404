"""kill -9 of the daemon: its workers end, or wait for the next one, as configured."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import anyio
import pytest

from busd.keeper.control_group import open_group
from tests.workers.conftest import MakeLaunch, MakeSpawner, StartDaemon
from tests.workers.processes import Told, is_alive, patience, wait_for_end
from tests.workers.test_families import STAYS_WITH_FAMILY, alive, keepers, parent_of
from tests.workers.test_life import STAYS

pytestmark = pytest.mark.anyio


async def test_no_process_is_left_when_the_daemon_is_killed(
    start_daemon: StartDaemon, launch: MakeLaunch, told: Told, state: Path
) -> None:
    daemon = start_daemon(launch(STAYS_WITH_FAMILY, stop_seconds=0.5), stop_seconds=0.5)
    family = [await told.next_pid() for _ in range(3)]
    left_keepers = keepers(state)
    daemon.kill()
    for pid in [*family, *left_keepers]:
        await wait_for_end(pid)
    assert not told.left_behind()


async def test_a_kept_worker_is_adopted_by_the_next_daemon(
    start_daemon: StartDaemon, launch: MakeLaunch, make_spawner: MakeSpawner, told: Told
) -> None:
    daemon = start_daemon(launch(STAYS_WITH_FAMILY, restart_seconds=0.01), when_bus_stops="keep")
    family = [await told.next_pid() for _ in range(3)]
    daemon.kill()
    async with make_spawner(when_bus_stops="keep") as spawner:
        worker = await spawner.adopt("agent:w", daemon.workers[0]["unit"])
        assert worker is not None
        assert worker.pid == family[-1]
        assert alive(family) == family
        os.kill(family[-1], signal.SIGKILL)
        again = [await told.next_pid() for _ in range(3)]
        assert not alive(family)
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
    daemon = start_daemon(launch(STAYS_WITH_FAMILY), when_bus_stops="keep", adopt_seconds=0.3)
    family = [await told.next_pid() for _ in range(3)]
    left_keepers = keepers(state)
    daemon.kill()
    for pid in [*family, *left_keepers]:
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
    wanted = launch(STAYS_WITH_FAMILY, credentials={"key": str(secret)})
    daemon = start_daemon(wanted, when_bus_stops=when_bus_stops)
    family = [await told.next_pid() for _ in range(3)]
    (keeper,) = keepers(state)
    reaper = await reaper_of(keeper)
    both = [keeper, daemon.process.pid]
    for pid in both if is_keeper_first else reversed(both):
        os.kill(pid, signal.SIGKILL)
    for pid in [keeper, *family, reaper]:
        await wait_for_end(pid)
    assert not told.left_behind()
    assert not (state / "credentials").exists()


@pytest.mark.parametrize("kind", ["subprocess"])
async def test_no_process_is_left_though_the_reaper_was_killed_before_the_keeper(
    start_daemon: StartDaemon, launch: MakeLaunch, told: Told, state: Path
) -> None:
    daemon = start_daemon(launch(STAYS_WITH_FAMILY))
    family = [await told.next_pid() for _ in range(3)]
    (keeper,) = keepers(state)
    reaper = await reaper_of(keeper)
    os.kill(reaper, signal.SIGKILL)
    await wait_for_end(reaper)
    assert alive([keeper, *family]) == [keeper, *family]
    os.kill(keeper, signal.SIGKILL)
    daemon.kill()
    for pid in family:
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


async def reaper_of(keeper: int) -> int:
    """Wait until the parent of a keeper is a reaper that waits for its end."""
    with patience():
        while True:
            pid = parent_of(keeper)
            if b"keeper.reaper" in read_proc(pid, "cmdline") and ignores_sigterm(pid):
                return pid
            await anyio.sleep(0.01)  # nothing tells when a process has got that far
    raise AssertionError("the keeper has no reaper")


def ignores_sigterm(pid: int) -> bool:
    rows = (line.split() for line in read_proc(pid, "status").splitlines())
    ignored = next((int(row[1], 16) for row in rows if row[0] == b"SigIgn:"), 0)
    return bool(ignored & 1 << (signal.SIGTERM - 1))


def read_proc(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


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
    first = start_daemon(launch(STAYS_WITH_FAMILY), has_groups=has_groups, when_bus_stops="keep")
    family = [await told.next_pid() for _ in range(3)]
    (keeper,) = keepers(state)
    ours = [await reaper_of(keeper), keeper, parent_of(family[-1])]
    for pid in ours:
        os.kill(pid, signal.SIGSTOP)  # nobody shall notice that another one ends
    for pid in (first.process.pid, *ours):
        os.kill(pid, signal.SIGKILL)
    for pid in (*ours, family[-1]):
        await wait_for_end(pid)
    assert alive(family) == family[:-1]  # nobody is there who could end them
    second = start_daemon(launch(STAYS), has_groups=has_groups)
    await told.next_pid()
    forgotten = alive(family)
    second.kill()
    for pid in forgotten:
        os.kill(pid, signal.SIGKILL)
    group = open_group("test")
    has_cleared = [] if has_groups and group.can_be_entered else [family[1]]
    group.remove()
    assert forgotten == has_cleared


@pytest.mark.parametrize("kind", ["subprocess"])
async def test_no_process_is_left_though_the_state_directory_was_removed_before(
    start_daemon: StartDaemon, launch: MakeLaunch, told: Told, state: Path
) -> None:
    daemon = start_daemon(launch(STAYS_WITH_FAMILY, stop_seconds=0.5), stop_seconds=0.5)
    family = [await told.next_pid() for _ in range(3)]
    left_keepers = keepers(state)
    shutil.rmtree(state)
    daemon.kill()
    for pid in [*family, *left_keepers]:
        await wait_for_end(pid)
