"""Hearing: what each message of the bus does in the chat that it is addressed to.

| message | what it does |
| --- | --- |
| `tg_reply` | is posted; its ack is sent when that is done |
| `agent_event` `turn.…` | changes what is shown of its turn |
| any other `agent_event` | is passed to `@bridge.hears` |
| `general_response`, `spawn_result`, `route_assigned` | is acked |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from busd.bridge.lanes import Lanes
from busd.bridge.live import LiveTurn
from busd.bridge.messages import ChatEvent, Inbound, Reply, SpokenReply
from busd.errors import Refuse
from busd.rpc.reading import Id
from busd.vocabulary.bub import AgentEvent
from busd.vocabulary.payload import author_of, decode_payload, read_message
from busd.vocabulary.turn_events import TurnDelta, TurnError, TurnPrompt, TurnStep

if TYPE_CHECKING:
    from busd.client.incoming import Incoming

IGNORED = ("general_response", "spawn_result", "route_assigned")
TAKEN = ("tg_reply", "agent_event", *IGNORED)


def reply_of(message: Incoming, chat_id: str) -> Reply:
    """Return a `tg_reply`; raise Refuse if it cannot be read."""
    said = read_message(message.raw, SpokenReply)
    own = decode_payload(message.raw).message_id
    return Reply(
        chat_id=chat_id,
        text=said.text,
        sender=author_of(message.sender, message.raw),
        message_id=message.message_id if own is UNSET else str(own),
        reply_to=_text(said.reply_to_message_id),
        prompt_id=_text(said.prompt_id),
        thread_id=_text(said.thread_id),
        attachments=said.attachments,
        metadata=said.metadata,
        is_redelivery=message.is_redelivery,
    )


def read_event(message: Incoming, chat_id: str) -> ChatEvent:
    """Return an `agent_event`; raise Refuse if it cannot be read."""
    said = read_message(message.raw, AgentEvent)
    sender = author_of(message.sender, message.raw)
    return ChatEvent(chat_id=chat_id, name=said.event, sender=sender, data=said.data)


def show_event(lanes: Lanes, event: ChatEvent) -> None:
    """Change what is shown of a turn; raise Refuse if the event cannot be read."""
    said = AgentEvent(event.name, event.data)
    match event.name:
        case "turn.delta":
            delta = said.read(TurnDelta)
            if live := _turn(lanes, event.chat_id, delta.turn):
                live.add_text(delta.text)
        case "turn.step":
            step = said.read(TurnStep)
            if live := _turn(lanes, event.chat_id, step.turn):
                live.set_step(step)
        case "turn.prompt":
            prompt = said.read(TurnPrompt)
            if live := _turn(lanes, event.chat_id, prompt.turn):
                live.ask(prompt)
        case "turn.error":
            error = said.read(TurnError)
            if live := _turn(lanes, event.chat_id, error.turn):
                live.fail(error)


def _turn(lanes: Lanes, chat_id: str, turn: Id | None) -> LiveTurn | None:
    """Return the turn of an event, to be shown soon."""
    if turn is None or turn == "":
        return None
    live = lanes.find_turn(chat_id, str(turn))
    if live is None:  # pushed before this process was started
        live = LiveTurn(chat_id, str(turn))
        lanes.open_turn(live)
    lanes.touch_turn(live)
    return live


def begin_turn(lanes: Lanes, inbound: Inbound) -> LiveTurn | None:
    """Show the turn that a message begins; one that answers a prompt begins none."""
    asking = lanes.waiting_prompt(inbound.chat_id)
    if asking is not None:
        asking.answer()
        lanes.touch_turn(asking)
        return None
    if inbound.prompt_id or lanes.find_turn(inbound.chat_id, inbound.turn):
        return None
    live = LiveTurn(inbound.chat_id, inbound.turn, inbound)
    lanes.open_turn(live)
    return live


def refusal_of_type(type_name: str) -> Refuse:
    return Refuse(f"a chat takes {', '.join(TAKEN)}, not {type_name[:80]!r}")


def _text(said: Id | None) -> str:
    return "" if said is None else str(said)
