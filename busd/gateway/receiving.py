"""Receiving: what each message of the bus does in the conversation that it is addressed to.

| message | what it does |
| --- | --- |
| `tg_reply` | ends its turn and is kept; one without a turn is kept |
| `tg_reply` with a `prompt_id` | stands for the prompt, unless that was shown already |
| `agent_event` `turn.delta`, `turn.step` | is shown |
| `agent_event` `turn.prompt` | is kept until it is answered, and shown |
| `agent_event` `turn.error` | ends its turn |
| `agent_event` `task.*`, `context.updated` | changes a task, shares data |
| `route_assigned` | names the default agent |

The ack is sent when all of it is on the disk. What came before is recognized and not shown again,
and so is what comes from a turn that was cancelled, or that its agent has failed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import structlog
from msgspec import UNSET, Raw

from busd.errors import Refuse
from busd.gateway.agent_events import EVENTS
from busd.gateway.conversation import Entry, Kind, TurnEnd
from busd.gateway.endings import MUTED, show_prompts_ended
from busd.gateway.events import Replied, TurnEnded
from busd.gateway.messages import AgentReply, number_of_words
from busd.gateway.order import StepFailed
from busd.gateway.prompting import ask_as_text
from busd.gateway.refusal import RETRY_SECONDS, Refusal
from busd.gateway.turns import AGENT_PREFIX, RunningTurn, TurnEvent, agent_author
from busd.vocabulary.bub import AgentEvent, RouteAssigned
from busd.vocabulary.payload import author_of, decode_payload, read_message

if TYPE_CHECKING:
    from busd.client.incoming import Incoming
    from busd.gateway.hub import Hub
    from busd.gateway.room import Room
    from busd.gateway.store import Store
    from busd.gateway.stored import Kept

log = structlog.get_logger("busd.gateway")

_SENDERS = (AGENT_PREFIX, "system:", "plugin:")
_IGNORED = ("general_response", "spawn_result")


class Arrival(msgspec.Struct, frozen=True):
    """A message of the bus."""

    sender: str  # who speaks
    to: str
    message_id: str
    payload: Raw
    is_redelivery: bool

    @property
    def origin(self) -> str:
        """What is the same for each delivery of one message, and differs for any other."""
        own = decode_payload(self.payload).message_id
        return f"{self.sender} {self.message_id if own is UNSET else own}"


Step = Callable[["Room", Arrival], Awaitable[None]]


async def receive(hub: Hub, arrival: Arrival, type_name: str) -> None:
    """Do what a message says; raise Refuse if it cannot be done."""
    room = hub.room_at(arrival.to)
    if room is None:
        # Let go of just now; the bus keeps the message until the conversation is held again.
        raise Refuse("nobody is in this conversation", retry_seconds=1.0)
    if not arrival.sender.startswith(_SENDERS):
        raise Refuse(f"only agents speak to a conversation, not {arrival.sender}")
    if type_name in _IGNORED:
        return
    step = _STEPS.get(type_name)
    if step is None:
        known = ", ".join(_STEPS)
        raise Refuse(f"a conversation takes {known}, not {type_name[:80]!r}")
    try:
        await room.order.run(partial(_load_and_take, room, arrival, step))
    except Refusal as refusal:
        seconds = refusal.retry_seconds or (RETRY_SECONDS if refusal.rule == "busy" else None)
        raise Refuse(refusal.reason, retry_seconds=seconds) from None
    except StepFailed as problem:
        raise Refuse(str(problem), retry_seconds=30.0) from None


async def _load_and_take(room: Room, arrival: Arrival, step: Step) -> None:
    try:
        await room.load()
        await step(room, arrival)
    except Refuse as refuse:
        raise Refusal("invalid", refuse.reason, retry_seconds=refuse.retry_seconds) from None


# Replies


async def take_reply(room: Room, arrival: Arrival) -> None:
    """Keep a reply, end its turn, and show it."""
    reply = read_message(arrival.payload, AgentReply)
    turn = room.sign(reply.reply_to_message_id, arrival.sender)
    if reply.prompt_id is not None:
        if turn is not None:
            again = arrival.is_redelivery
            await ask_as_text(room, turn, str(reply.prompt_id), reply.text, is_redelivery=again)
        return
    entry = _entry_of(room, arrival, reply, turn)

    def store_reply(store: Store) -> Kept | None:
        this = room.session_id
        if turn is None:
            entry.turn = entry.reply_to = _id_of_words(store, this, entry.turn)
        origin = f"{arrival.origin} {entry.turn}"
        if turn is not None:
            store.end_turn(this, *turn.key, "replied")
        elif any(how in MUTED for _, how in store.how_ended(this, entry.turn)):
            return None
        is_known = turn is not None or store.find_origin(this, origin) is not None
        if not is_known and store.find_entry(this, entry.id) is not None:
            entry.id = room.hub.new_id()  # somebody else has chosen the same id
        return store.keep(this, entry, origin)

    kept = await room.hub.store.run(store_reply)
    prompts = room.end_turn(turn, TurnEvent.REPLIED) if turn else []
    if turn is not None:
        show_prompts_ended(room, turn, prompts)
    if kept is not None and not kept.is_duplicate:
        show_reply(room, turn, kept.entry)
    if turn is not None:
        room.show_turn(TurnEnded(room.name, turn.shown, TurnEnd.REPLIED, False), turn)
    room.record_cursors(is_urgent=True)


def _id_of_words(store: Store, session_id: str, turn_id: str) -> str:
    """Return the id of a turn that is over, which an agent may name by the message it got."""
    number = number_of_words(session_id, turn_id)
    found = store.page(session_id, before=number + 1, last=1).entries if number else []
    return found[0].id if found and found[0].number == number else turn_id


def show_reply(room: Room, turn: RunningTurn | None, entry: Entry) -> None:
    room.show_entry(entry)
    shown = Replied(room.name, turn.shown if turn else None, entry, False)
    if turn is not None:
        room.show_turn(shown, turn)
    else:
        room.show(shown, None)


def _entry_of(room: Room, arrival: Arrival, reply: AgentReply, turn: RunningTurn | None) -> Entry:
    """Return a reply as an entry; it has the id that was promised when its turn began."""
    own = decode_payload(arrival.payload).message_id
    fallback = arrival.message_id if own is UNSET else str(own)
    turn_id = turn.shown.id if turn else str(reply.reply_to_message_id or "")
    thread_id = str(reply.thread_id or (turn.shown.thread_id if turn else ""))
    return Entry(
        id=(turn.shown.reply_id if turn else "") or fallback,
        text=reply.text,
        author=agent_author(arrival.sender),
        timestamp=room.hub.timestamp(),
        kind=Kind.REPLY,
        turn=turn_id,
        reply_to=turn_id,
        thread_id=thread_id,
        attachments=reply.attachments,
        mentions=reply.mentions,
        metadata=reply.metadata,
    )


# Events


async def take_event(room: Room, arrival: Arrival) -> None:
    """Do what an event says; one that nobody here knows is acked."""
    event = read_message(arrival.payload, AgentEvent)
    if act := EVENTS.get(event.event):
        await act(room, arrival, event)
    else:
        log.debug("event.ignored", name=event.event[:80], sender=arrival.sender)


async def note_route(room: Room, arrival: Arrival) -> None:
    """Note which agent the conversation has."""
    agent = read_message(arrival.payload, RouteAssigned).agent_id
    if agent.startswith(AGENT_PREFIX):
        room.agent = agent


_STEPS: dict[str, Step] = {
    "tg_reply": take_reply,
    "agent_event": take_event,
    "route_assigned": note_route,
}


def arrival_of(message: Incoming) -> Arrival:
    """Return a message of a client with its author."""
    author = author_of(message.sender, message.raw)
    is_again = message.is_redelivery
    return Arrival(author, message.to, message.message_id, message.raw, is_again)
