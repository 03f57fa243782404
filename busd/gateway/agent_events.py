"""What each event of an agent does; steps of a conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import UNSET

from busd.errors import Refuse
from busd.gateway.endings import Failure, details_of, fail_turn
from busd.gateway.events import ContextShared, Delta, Stepped, TaskChanged
from busd.gateway.messages import (
    TASK_EVENTS,
    ContextReport,
    TaskReport,
    prompt_of,
    step_of,
)
from busd.gateway.prompting import ask
from busd.gateway.sharing import update_of
from busd.gateway.turns import TurnEvent, agent_author
from busd.vocabulary.turn_events import TurnDelta, TurnError, TurnPrompt, TurnStep

if TYPE_CHECKING:
    from busd.gateway.receiving import Arrival
    from busd.gateway.room import Room
    from busd.vocabulary.bub import AgentEvent


async def take_delta(room: Room, arrival: Arrival, event: AgentEvent) -> None:
    """Show a part of an answer."""
    delta = event.read(TurnDelta)
    turn = room.sign(delta.turn, arrival.sender)
    if turn is not None and delta.text and turn.add_text(delta.text):
        turn.advance(TurnEvent.SIGNED, room.hub.clock())
        room.show_turn(Delta(room.name, turn.shown, delta.text, False), turn)


async def take_step(room: Room, arrival: Arrival, event: AgentEvent) -> None:
    """Show a step of a turn."""
    step = event.read(TurnStep)
    if turn := room.sign(step.turn, arrival.sender):
        turn.advance(TurnEvent.SIGNED, room.hub.clock())
        turn.shown.has_steps = True
        room.show_turn(Stepped(room.name, turn.shown, step_of(step), False), turn)


async def take_prompt(room: Room, arrival: Arrival, event: AgentEvent) -> None:
    """Keep a prompt and show it."""
    asked = event.read(TurnPrompt)
    if turn := room.sign(asked.turn, arrival.sender):
        prompt = prompt_of(asked, turn.shown.id, room.hub.timestamp())
        await ask(room, turn, prompt, is_redelivery=arrival.is_redelivery)


async def take_error(room: Room, arrival: Arrival, event: AgentEvent) -> None:
    """End a turn that its agent has failed."""
    error = event.read(TurnError)
    turn = room.sign(error.turn, arrival.sender)
    if turn is None:
        return
    failure = Failure(
        error.code,
        error.message,
        details_of(error.details),
        error.severity,
        error.recoverable,
    )
    await fail_turn(room, turn, TurnEvent.FAILED, failure)


async def take_task(room: Room, arrival: Arrival, event: AgentEvent) -> None:
    """Keep the state of a task and show it."""
    change = event.read(TaskReport).as_task()
    if not change.task_id:
        raise Refuse(f"agent_event {event.event}: content.data: task_id is empty")
    if change.progress is not UNSET and not 0 <= change.progress <= 100:
        raise Refuse(f"agent_event {event.event}: content.data: progress is from 0 to 100")
    by = agent_author(arrival.sender)
    update = update_of(room, change, by)
    task = await room.hub.store.run(lambda store: store.put_task(room.session_id, change, update))
    room.show(TaskChanged(room.name, task, TASK_EVENTS[event.event], by, False), None)


async def take_context(room: Room, arrival: Arrival, event: AgentEvent) -> None:
    """Show data that an agent shares."""
    said = event.read(ContextReport)
    shared = ContextShared(
        room.name,
        str(said.context_id),
        said.context_data,
        said.target_agents,
        agent_author(arrival.sender),
        False,
    )
    room.show(shared, None)


EVENTS: dict[str, Callable[[Room, Arrival, AgentEvent], Awaitable[None]]] = {
    "turn.delta": take_delta,
    "turn.step": take_step,
    "turn.prompt": take_prompt,
    "turn.error": take_error,
    **dict.fromkeys(TASK_EVENTS, take_task),
    "context.updated": take_context,
}
