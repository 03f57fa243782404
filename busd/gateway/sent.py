"""What follows when a message to an agent was accepted, or refused."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from busd.gateway.endings import Failure, cancel_turns, fail_turn
from busd.gateway.messages import turn_of
from busd.gateway.turns import RunningTurn, TurnEvent

if TYPE_CHECKING:
    from busd.gateway.receipts import Outcome
    from busd.gateway.room import Room
    from busd.gateway.stored import Outgoing

# What a `busd.Agent` acks words with that get no turn of their own, or end others.
_ANSWERS_A_PROMPT = ("answers a prompt", "not one of the options; asked again")
_ENDS_THE_LAST = "merged"
_ENDS_ALL = "interrupts"


async def on_sent(room: Room, row: Outgoing, outcome: Outcome) -> None:
    """Forget a message, and let its turn go on or fail; raise StoreFailed, or Refusal."""
    key = turn_of(row)
    turn = None if key is None else room.turns.get(key)
    if turn is not None and outcome.is_accepted:
        turn.advance(TurnEvent.ACCEPTED, room.hub.clock())
        if ended := _ended_by(room, turn, outcome.said):
            await room.order.run(partial(cancel_turns, room, ended, tells=False))
    elif turn is not None:
        failure = Failure("agent_refused", outcome.reason or "the agent refused", how="refused")
        await room.order.run(partial(fail_turn, room, turn, TurnEvent.REFUSED, failure))
    await room.hub.store.run(
        lambda store: store.remove_outbox(room.session_id, row.message_id),
    )


def _ended_by(room: Room, turn: RunningTurn, said: str) -> list[RunningTurn]:
    """Return the turns to which there will be no reply, as the agent says in its ack."""
    if said in _ANSWERS_A_PROMPT:
        return [turn]
    earlier: list[RunningTurn] = []
    for each in room.turns.values():
        if each is turn:
            break
        if each.to == turn.to:
            earlier.append(each)
    if said == _ENDS_ALL:
        return earlier
    return earlier[-1:] if said == _ENDS_THE_LAST else []
