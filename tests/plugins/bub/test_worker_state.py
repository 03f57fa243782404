"""The states of a worker: the table of its transitions, walked."""

from __future__ import annotations

import re

import pytest

from busd_plugins.bub import worker_state
from busd_plugins.bub.worker_state import TRANSITIONS, WorkerState, initial_state

EVENTS = sorted({event for _, event in TRANSITIONS})
_ROW = re.compile(r"^\| ([A-Z, a-z]+) \| ([a-z]+) \| ([A-Z]+) \|$", re.MULTILINE)


def documented() -> dict[tuple[WorkerState, str], WorkerState]:
    """Read the table in the module's docstring."""
    table: dict[tuple[WorkerState, str], WorkerState] = {}
    for states, event, after in _ROW.findall(worker_state.__doc__ or ""):
        if event == "event":
            continue
        if states.startswith("all but "):
            others = [WorkerState[name] for name in states.removeprefix("all but ").split(", ")]
            before = [state for state in WorkerState if state not in others]
        else:
            before = [WorkerState[name] for name in states.split(", ")]
        table |= {(state, event): WorkerState[after] for state in before}
    return table


@pytest.mark.parametrize("state", WorkerState)
@pytest.mark.parametrize("event", EVENTS)
def test_every_event_in_every_state_does_what_the_table_says(
    state: WorkerState, event: str
) -> None:
    assert TRANSITIONS.get((state, event)) is documented().get((state, event))


def test_every_state_is_reached_from_the_beginning_and_left_again() -> None:
    reached = {initial_state("running"), initial_state("stopped"), initial_state("failed")}
    for _ in WorkerState:
        reached |= {after for (before, _), after in TRANSITIONS.items() if before in reached}
    assert reached == set(WorkerState)
    assert {before for before, _ in TRANSITIONS} == set(WorkerState)


@pytest.mark.parametrize("state", WorkerState)
def test_only_a_worker_that_has_joined_since_its_start_is_running(state: WorkerState) -> None:
    is_running = state in (WorkerState.READY, WorkerState.ENDING)
    assert (state.status == "running") is is_running


@pytest.mark.parametrize("state", [WorkerState.STOPPED, WorkerState.FAILED, WorkerState.UNKNOWN])
def test_a_connection_alone_changes_nothing(state: WorkerState) -> None:
    assert (state, "joined") not in TRANSITIONS
