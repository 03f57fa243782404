"""The state machine of turns: every transition of its table, and every other event."""

from __future__ import annotations

from itertools import product

import pytest

import busd.gateway.turns
from busd.gateway.conversation import Author, Turn
from busd.gateway.turns import OPEN, TRANSITIONS, RunningTurn, TurnEvent, TurnState


def turn_in(state: TurnState) -> RunningTurn:
    turn = RunningTurn(Turn(id="t", agent=Author("bob"), author=Author("ann")), 0, "agent:bob", 0)
    turn.state = state
    return turn


def documented() -> dict[tuple[TurnState, TurnEvent], TurnState]:
    """Return the table of the docstring."""
    table = {}
    for line in (busd.gateway.turns.__doc__ or "").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        event = cells[1].partition(":")[0].strip() if len(cells) == 3 else ""
        if event in list(TurnEvent):
            for state in cells[0].split(", "):
                table[TurnState[state], TurnEvent(event)] = TurnState[cells[2]]
    return table


def test_the_documented_table_is_the_one_in_use() -> None:
    assert documented() == TRANSITIONS


@pytest.mark.parametrize(("state", "event"), list(product(TurnState, TurnEvent)))
def test_an_event_changes_the_state_as_the_table_says_or_not_at_all(
    state: TurnState, event: TurnEvent
) -> None:
    turn = turn_in(state)
    after = TRANSITIONS.get((state, event))
    assert turn.advance(event, 5.0) == (after is not None)
    assert turn.state is (after or state)
    assert turn.since == (0 if after is None else 5.0)


@pytest.mark.parametrize("state", [each for each in TurnState if each not in OPEN])
def test_a_turn_that_has_ended_stays_as_it_is(state: TurnState) -> None:
    assert not turn_in(state).is_open
    assert not [event for event in TurnEvent if turn_in(state).advance(event, 1.0)]


@pytest.mark.parametrize(
    ("state", "seconds"),
    [
        (TurnState.WAITING, None),
        (TurnState.ASKED, 100),
        (TurnState.WORKING, 100),
        (TurnState.PROMPTING, None),
        (TurnState.OVERDUE, 5),
        (TurnState.REPLIED, None),
    ],
)
def test_time_is_up_only_while_the_agent_is_expected_to_do_something(
    state: TurnState, seconds: int | None
) -> None:
    turn = turn_in(state)
    times = [at for at in (4, 5, 99, 100, 10**9) if turn.is_due(at, 100, 5)]
    assert times == [at for at in (4, 5, 99, 100, 10**9) if seconds and at >= seconds]


def test_only_the_agent_of_a_turn_and_the_system_speak_for_it() -> None:
    named = turn_in(TurnState.ASKED)
    assert named.may_come_from("agent:bob")
    assert named.may_come_from("agent:system")
    assert not named.may_come_from("agent:eve")


def test_whoever_takes_up_words_without_an_addressee_is_the_agent_from_then_on() -> None:
    shown = Turn(id="t", agent=Author("", "agent"), author=Author("ann"))
    turn = RunningTurn(shown, 0, "system:route", 0)
    turn.note_agent("agent:system")
    assert turn.shown.agent.id == ""
    assert turn.may_come_from("agent:worker-1")
    turn.note_agent("agent:worker-1")
    assert turn.shown.agent == Author("worker-1", "agent")
    assert turn.may_come_from("agent:worker-1")
    assert not turn.may_come_from("agent:worker-2")


def test_an_answer_that_is_too_long_is_no_longer_shown_in_parts() -> None:
    turn = turn_in(TurnState.WORKING)
    assert turn.add_text("x" * busd.gateway.turns.MAX_TEXT_CHARACTERS)
    assert not turn.add_text("y")
    assert not turn.shown.text.endswith("y")
