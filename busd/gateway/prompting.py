"""Prompting: agents ask users, and wait for the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from busd.gateway.conversation import Prompt, PromptEnd
from busd.gateway.events import Prompted
from busd.gateway.refusal import Refusal
from busd.gateway.speaking import close_prompt
from busd.gateway.stored import OpenPrompt
from busd.gateway.turns import RunningTurn, TurnEvent

if TYPE_CHECKING:
    from busd.gateway.room import Room


async def ask(
    room: Room, turn: RunningTurn, prompt: Prompt, *, is_redelivery: bool = False
) -> None:
    """Keep a prompt until it is answered, and show it; a step.

    One that was answered is asked again by an agent whose worker died: unless it is a redelivery.
    """
    now = room.hub.clock()
    closes = None if prompt.seconds_left is None else now + prompt.seconds_left
    opened = OpenPrompt(prompt=prompt, slot=turn.slot, closes=closes)
    other = room.prompts.get(prompt.id)
    if is_redelivery and other is not None:
        return
    is_put = await room.hub.store.run(
        lambda store: store.put_prompt(room.session_id, opened, reopens=not is_redelivery)
    )
    if is_put:
        turn.asked[prompt.id] = room.hub.bus.lines
        room.add_prompt(opened)
        room.show_turn(Prompted(room.name, turn.shown, prompt, False), turn)
    elif not is_redelivery:
        raise Refusal("invalid", f"another turn has a prompt with the id {prompt.id[:80]!r}")


async def ask_as_text(
    room: Room, turn: RunningTurn, prompt_id: str, text: str, *, is_redelivery: bool = False
) -> None:
    """Keep the plain text of a prompt, unless the prompt itself was shown; a step.

    Events are not kept by the bus, so that the prompt itself is lost while the gateway is away. It
    may be one that was answered, and that an agent asks again which has begun its turn anew.
    """
    if prompt_id in room.prompts or turn.asked.get(prompt_id) == room.hub.bus.lines:
        return
    this = room.session_id
    if is_redelivery and await room.hub.store.run(
        lambda store: store.knows_prompt(this, prompt_id)
    ):
        return
    asked = Prompt(
        id=prompt_id,
        turn=turn.shown.id,
        input_type="text",
        text=text,
        timestamp=room.hub.timestamp(),
    )
    await ask(room, turn, asked)


async def time_out(room: Room, prompt: OpenPrompt) -> None:
    """Close a prompt whose time is up; a step. Its agent is about to end the turn."""
    prompt_id = prompt.prompt.id
    if room.prompts.get(prompt_id) is prompt:
        await room.hub.store.run(lambda store: store.close_prompt(room.session_id, prompt_id))
        close_prompt(room, prompt, PromptEnd.TIMED_OUT, TurnEvent.LAPSED)
