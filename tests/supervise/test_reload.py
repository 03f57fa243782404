"""Other settings for a spawner that is open already."""

from __future__ import annotations

import pytest

from busd.supervise.systemd_unit import restart_properties
from busd.supervise.worker import SupervisorSettings
from tests.supervise.conftest import MakeLaunch, MakeSpawner
from tests.supervise.processes import Told, is_alive, wait_for_end
from tests.supervise.test_life import STAYS
from tests.systemd.managers import UserManager

pytestmark = pytest.mark.anyio

KEPT = SupervisorSettings(when_bus_stops="keep", stop_seconds=0.5)
STOPPED = SupervisorSettings(when_bus_stops="stop", stop_seconds=0.5)


async def test_workers_started_after_a_reload_are_kept_by_then(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner(stop_seconds=0.5) as spawner:
        assert await spawner.reload(KEPT) == []
        unit = (await spawner.start(launch(STAYS))).unit
        pid = await told.next_pid()
    assert is_alive(pid)
    async with make_spawner(when_bus_stops="keep") as spawner:
        worker = await spawner.adopt("agent:w", unit)
        assert worker is not None
        assert worker.pid == pid
        await worker.stop()


@pytest.mark.parametrize("kind", ["subprocess"])
async def test_a_keeper_keeps_workers_that_ran_before_a_reload(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner(stop_seconds=0.5) as spawner:
        unit = (await spawner.start(launch(STAYS))).unit
        pid = await told.next_pid()
        assert await spawner.reload(KEPT) == []
    assert is_alive(pid)
    async with make_spawner(when_bus_stops="keep") as spawner:
        worker = await spawner.adopt("agent:w", unit)
        assert worker is not None
        await worker.stop()


@pytest.mark.parametrize("kind", ["systemd"])
async def test_units_that_ran_before_a_reload_are_not_kept_and_that_is_said(
    make_spawner: MakeSpawner, launch: MakeLaunch, user_manager: UserManager
) -> None:
    async with make_spawner(stop_seconds=0.5) as spawner:
        before = await spawner.start(launch(STAYS))
        (said,) = await spawner.reload(KEPT)
        assert said == (
            "when_bus_stops: workers that run already end with the bus; restart them to keep them"
        )
        after = await spawner.start(launch(STAYS, "agent:w2"))
        guards = [user_manager.show(worker.unit, "BindsTo") for worker in (before, after)]
        assert [guard.endswith("-keep.service") for guard in guards] == [False, True]
        for worker in (before, after):
            await worker.stop()


async def test_workers_that_were_to_be_kept_end_with_the_bus_after_a_reload(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner(when_bus_stops="keep") as spawner:
        await spawner.start(launch(STAYS, "agent:w1"))
        assert await spawner.reload(STOPPED) == []
        await spawner.start(launch(STAYS, "agent:w2"))
        pids = [await told.next_pid() for _ in range(2)]
    for pid in pids:
        await wait_for_end(pid)


@pytest.mark.parametrize("kind", ["systemd"])
async def test_a_new_ceiling_holds_at_once(
    make_spawner: MakeSpawner, user_manager: UserManager
) -> None:
    async with make_spawner(tasks_max=400) as spawner:
        assert await spawner.reload(SupervisorSettings(tasks_max=500)) == []
        assert user_manager.show("busd-agents.slice", "TasksMax") == "500"


@pytest.mark.parametrize(
    ("version", "first", "steps"), [(252, 0.5, None), (254, 0.5, 6), (257, 1.0, 5)]
)
def test_pauses_grow_with_a_systemd_that_can(
    launch: MakeLaunch, version: int, first: float, steps: int | None
) -> None:
    properties = dict(restart_properties(launch("", restart_seconds=first), version))
    assert properties.get("RestartSteps") == (steps and ("u", steps))
    assert properties.get("RestartMaxDelayUSec") == (steps and ("t", 30_000_000))
    always = dict(restart_properties(launch("", restart_seconds=40.0), version))
    assert always["RestartUSec"] == ("t", 30_000_000)
    assert "RestartSteps" not in always
