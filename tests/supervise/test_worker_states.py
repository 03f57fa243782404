"""The states of a worker that is a unit: the table of its transitions, walked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from busd.supervise import systemd_worker
from busd.supervise.systemd_unit import Ending, UnitFiles
from busd.supervise.systemd_worker import TRANSITIONS, Event, State, SystemdWorker
from busd.supervise.worker import Report

pytestmark = pytest.mark.anyio

KILLED = Ending("signal", "killed", "KILL")
_ROW = re.compile(r"^\| `([A-Z]+)` \| `([A-Z_]+)` \| `([A-Z]+)` \|$", re.MULTILINE)


def documented() -> dict[tuple[State, Event], State]:
    """Read the table in the module's docstring."""
    rows = _ROW.findall(systemd_worker.__doc__ or "")
    return {(State[before], Event[event]): State[after] for before, event, after in rows}


def make_worker(folder: Path, state: State) -> SystemdWorker:
    async def end(worker: SystemdWorker) -> None:
        worker.on_gone("stopped", "")

    files = UnitFiles(folder, "w.service")
    worker = SystemdWorker("agent:w", "w.service", files, folder, end, None, state)
    worker.pid = 1 if state is State.RUNNING else None
    return worker


def reports_of(worker: SystemdWorker) -> list[Report]:
    return list(worker._reports._unread)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
async def test_every_event_in_every_state_does_what_the_table_says(
    tmp_path: Path, state: State, event: Event
) -> None:
    worker = make_worker(tmp_path, state)
    after = documented().get((state, event))
    assert TRANSITIONS.get((state, event)) is after
    assert worker.move(event) is (after is not None)
    assert worker.state is (after or state)


def test_every_state_is_reached_and_only_the_end_is_final() -> None:
    assert set(TRANSITIONS.values()) == set(State)
    assert set(State) - {before for before, _ in TRANSITIONS} == {State.ENDED}


async def test_a_run_that_nobody_saw_is_reported_as_a_restart(tmp_path: Path) -> None:
    worker = make_worker(tmp_path, State.RUNNING)
    worker.on_ending(KILLED, ())
    worker.on_ending(KILLED, ())
    worker.on_start(2)
    exited = Report("exited", "killed by SIGKILL")
    again = [Report("restarted"), exited, Report("restarted", pid=2)]
    assert reports_of(worker) == [exited, *again]
    assert (worker.pid, worker.last_ending) == (2, KILLED)


@pytest.mark.parametrize("state", [State.STOPPING, State.ENDED])
async def test_nothing_is_reported_of_the_runs_of_a_worker_that_is_stopped(
    tmp_path: Path, state: State
) -> None:
    worker = make_worker(tmp_path, state)
    worker.on_ending(KILLED, ())
    worker.on_start(2)
    assert not reports_of(worker)
    assert worker.pid is None


async def test_the_end_of_a_unit_is_reported_once(tmp_path: Path) -> None:
    worker = make_worker(tmp_path, State.RUNNING)
    worker.on_gone("failed", "first")
    worker.on_gone("failed", "second")
    await worker.stop()
    assert reports_of(worker) == [Report("failed", "first")]
    assert worker.pid is None
