"""Deadlines: prompts that nobody answers in time, and turns whose agents are silent."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from busd.gateway.endings import Failure, fail_turn
from busd.gateway.prompting import time_out
from busd.gateway.turns import RunningTurn, TurnEvent, TurnState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from busd.gateway.room import Room

GRACE_SECONDS = 5.0  # for an agent to fail a turn whose prompt was not answered in time

_UNANSWERED = Failure("prompt_timeout", "nobody answered the question in time", is_told=True)


def check_deadlines(rooms: Iterable[Room], now: float, turn_seconds: float) -> None:
    """End what is due; a conversation that is busy is looked at the next time."""
    for room in rooms:
        if not room.order.is_idle:
            continue
        for prompt in room.prompts.values():
            if prompt.closes is not None and prompt.closes <= now:
                room.order.put(partial(time_out, room, prompt))
        for turn in room.turns.values():
            if turn.is_due(now, turn_seconds, GRACE_SECONDS):
                room.order.put(partial(_end_turn, room, turn, turn_seconds))


async def _end_turn(room: Room, turn: RunningTurn, turn_seconds: float) -> None:
    """Fail a turn, unless its agent has shown a sign in the last moment; a step."""
    if not turn.is_due(room.hub.clock(), turn_seconds, GRACE_SECONDS):
        return
    failure = _UNANSWERED
    if turn.state is not TurnState.OVERDUE:
        reason = f"no sign of the agent for {turn_seconds:g} seconds"
        failure = Failure("timeout", reason, how="timed_out", is_told=True)
    await fail_turn(room, turn, TurnEvent.TIMED_OUT, failure)
