"""How turns end before an agent has replied: they fail, or are cancelled.

The end is stored first, and with it how: late output of a turn that its agent has failed, or that
was cancelled, is recognized by that and not shown.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw

from busd.gateway.conversation import Author, Entry, Kind, Prompt, PromptEnd, TurnEnd
from busd.gateway.events import PromptClosed, TurnEnded, TurnFailed
from busd.gateway.messages import event_for_agent
from busd.gateway.stored import Outgoing
from busd.gateway.turns import RunningTurn, TurnEvent

if TYPE_CHECKING:
    from busd.gateway.room import Room
    from busd.gateway.store import Store

MUTED = ("failed", "cancelled")  # turns of which nothing is shown any more
_SEVERITIES = ("warning", "error", "critical")


class Failure(msgspec.Struct, frozen=True):
    """Why a turn has failed."""

    code: str
    message: str
    details: Raw | None = None
    severity: str = "error"
    recoverable: bool = True
    how: str = "failed"  # as stored: one of `MUTED`, or later replies are shown
    is_told: bool = False  # the agent is asked to stop its work


async def fail_turn(room: Room, turn: RunningTurn, event: TurnEvent, failure: Failure) -> None:
    """End a turn that has failed, once; a step of the room's order."""
    if room.turns.get(turn.key) is not turn:
        return
    entry = _failure_entry(room, turn, failure)
    told = cancel_messages(room, [turn]) if failure.is_told else []

    def store_failure(store: Store) -> Entry:
        store.end_turn(room.session_id, *turn.key, failure.how)
        store.put_outbox(room.session_id, *told)
        return store.keep(room.session_id, entry).entry

    kept = await room.hub.store.run(store_failure)
    show_prompts_ended(room, turn, room.end_turn(turn, event))
    room.show_entry(kept)
    severity = failure.severity if failure.severity in _SEVERITIES else "error"
    room.show_turn(
        TurnFailed(
            room.name,
            turn.shown,
            failure.code,
            failure.message,
            failure.details,
            severity,
            failure.recoverable,
            kept,
            False,
        ),
        turn,
    )
    room.show_turn(TurnEnded(room.name, turn.shown, TurnEnd.FAILED, False), turn)
    room.outbox.add(*told)
    room.record_cursors(is_urgent=True)


def _failure_entry(room: Room, turn: RunningTurn, failure: Failure) -> Entry:
    about = {
        "code": failure.code,
        "severity": failure.severity,
        "recoverable": failure.recoverable,
        "details": failure.details,
    }
    agent = turn.shown.agent
    return Entry(
        id=turn.shown.reply_id or room.hub.new_id(),
        text=failure.message,
        author=agent if agent.id else Author("system", "system"),
        timestamp=room.hub.timestamp(),
        kind=Kind.FAILURE,
        turn=turn.shown.id,
        reply_to=turn.shown.id,
        thread_id=turn.shown.thread_id,
        metadata=Raw(msgspec.json.encode({k: v for k, v in about.items() if v is not None})),
    )


async def cancel_turns(room: Room, turns: Collection[RunningTurn], *, tells: bool = True) -> None:
    """Cancel turns; a step of the room's order."""
    told = cancel_messages(room, turns) if tells else []
    if turns:
        await room.hub.store.run(partial(store_cancelled, room=room, turns=turns, told=told))
        show_cancelled(room, turns)
        room.outbox.add(*told)


def store_cancelled(
    store: Store, room: Room, turns: Collection[RunningTurn], told: Collection[Outgoing]
) -> None:
    for turn in turns:
        store.end_turn(room.session_id, *turn.key, "cancelled")
    store.put_outbox(room.session_id, *told)


def show_cancelled(room: Room, turns: Collection[RunningTurn]) -> None:
    for turn in turns:
        show_prompts_ended(room, turn, room.end_turn(turn, TurnEvent.CANCELLED))
        room.show_turn(TurnEnded(room.name, turn.shown, TurnEnd.CANCELLED, False), turn)


def cancel_messages(room: Room, turns: Collection[RunningTurn]) -> list[Outgoing]:
    """Return the messages that stop the agents of turns."""
    return [
        Outgoing(
            message_id=f"{room.session_id}.{room.hub.new_id()}",
            to=turn.address,
            payload=event_for_agent(
                room.chat, "turn.cancel", {"turn": turn.shown.id}, room.hub.timestamp()
            ),
        )
        for turn in turns
    ]


def show_prompts_ended(room: Room, turn: RunningTurn, prompts: Collection[Prompt]) -> None:
    for prompt in prompts:
        closed = PromptClosed(room.name, prompt, PromptEnd.TURN_ENDED, False)
        room.show_turn(closed, turn)


def details_of(said: Raw | msgspec.UnsetType) -> Raw | None:
    """Return the details of an error, if it has any."""
    return None if said is UNSET else said
