"""Speaking: what users say to agents and to each other; steps of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from busd.bus.address import check_name
from busd.errors import MalformedAddress
from busd.gateway.choosing import chosen_values
from busd.gateway.conversation import Author, Entry, Kind, PromptEnd, Turn
from busd.gateway.effects import Amend, Answer, Cancel, Post, Say
from busd.gateway.endings import cancel_messages, cancel_turns, show_cancelled, store_cancelled
from busd.gateway.events import Amended, Done, Posted, PromptClosed, Said, TurnBegan
from busd.gateway.messages import words_for_agent, words_id
from busd.gateway.refusal import Refusal
from busd.gateway.speakers import check_text, claim_author, named_author
from busd.gateway.stored import Kept, OpenPrompt, Outgoing
from busd.gateway.turns import AGENT_PREFIX, RunningTurn, TurnEvent

if TYPE_CHECKING:
    from busd.gateway.room import Room
    from busd.gateway.session import Session
    from busd.gateway.store import Store

MAX_AGENTS = 32  # that one message is for
_ROUTE = "system:route"  # finds or starts an agent for each conversation


def prepared(room: Room, session: Session, entry: Entry, kind: Kind) -> Entry:
    """Return an entry as it is to be kept: complete, and by an author whom its client may name."""
    check_text("entry.id", entry.id, is_optional=True)
    if kind is Kind.POST and entry.author.type == "system":
        author = entry.author
        check_text("author.id", author.id, is_optional=True)
    else:
        author = named_author(entry.author, session, room)
    return msgspec.structs.replace(
        entry,
        id=entry.id or room.hub.new_id(),
        author=author,
        timestamp=entry.timestamp or room.hub.timestamp(),
        kind=kind,
        number=0,
        dialect=entry.dialect or session.dialect.prefix,
    )


def claim(store: Store, room: Room, session: Session, author: Author) -> None:
    """Make sure that an author may speak; the system is nobody."""
    if author.type != "system":
        claim_author(store, room, session, author)


# Words


async def say(room: Room, session: Session, request: Say) -> None:
    """Keep words, show them, and begin a turn for each agent."""
    if request.entry.prompt_id:
        values = (request.entry.text,)
        await _answer(room, session, request, request.entry.prompt_id, values)
        return
    agents = _agents(room, request)
    if "" in agents and not session.is_owner and room.hub.settings.agent == _ROUTE:
        room.hub.beginnings.charge(session.user, room.session_id)
    entry = prepared(room, session, request.entry, Kind.WORDS)
    entry.to = agents if request.agents else entry.to
    ended = _interrupted(room, entry) if request.interrupts else []
    told = cancel_messages(room, ended)
    turns = [_begin(room, session, entry, slot, name) for slot, name in enumerate(agents)]

    def store_words(store: Store) -> tuple[Kept, list[Outgoing]]:
        claim(store, room, session, entry.author)
        kept = store.keep(room.session_id, entry)
        if kept.is_duplicate:
            return kept, []
        store_cancelled(store, room, ended, told)
        payload = words_for_agent(room.chat, kept.entry)
        number = kept.entry.number
        for turn in turns:
            turn.message_id = words_id(room.session_id, number, turn.slot)
        rows = [
            Outgoing(
                message_id=turn.message_id,
                to=turn.to,
                payload=payload,
                number=number,
                slot=turn.slot,
            )
            for turn in turns
        ]
        for turn in turns:
            store.put_turn(room.session_id, turn.stored(room.hub.clock()))
        store.put_outbox(room.session_id, *rows)
        return kept, rows

    kept, rows = await room.hub.store.run(store_words)
    if kept.is_duplicate:
        session.show(Done(request, kept.entry, is_duplicate=True))
        return
    room.show_entry(kept.entry)
    show_cancelled(room, ended)
    session.show(Done(request, kept.entry))
    room.show(Said(room.name, kept.entry, False), session)
    for turn in turns:
        room.turns[turn.key] = turn
        room.show_turn(TurnBegan(room.name, turn.shown, False), turn)
    room.outbox.add(*told, *rows)


def _agents(room: Room, request: Say) -> tuple[str, ...]:
    """Return the names of the agents that get the words; "" is the default one."""
    if request.agents is None:
        return ()
    named = tuple(dict.fromkeys(request.agents))
    if len(named) > MAX_AGENTS:
        raise Refusal("limit", f"words are for at most {MAX_AGENTS} agents")
    for name in named:
        check_agent(name)
    return named or ("",)


def check_agent(name: str) -> None:
    """Raise Refusal for what cannot be the name of an agent."""
    try:
        check_name(f"{AGENT_PREFIX}{name}")
    except MalformedAddress as problem:
        raise Refusal("agent", problem.message, detail=name[:200]) from None
    if not name or name == "system":
        raise Refusal("agent", "there is no agent of this name to talk to", detail=name)


def _begin(room: Room, session: Session, entry: Entry, slot: int, name: str) -> RunningTurn:
    hub = room.hub
    to = f"{AGENT_PREFIX}{name}" if name else hub.settings.agent
    agent = Author(to.removeprefix(AGENT_PREFIX) if to.startswith(AGENT_PREFIX) else "", "agent")
    shown = Turn(
        id=entry.id,
        agent=agent,
        author=entry.author,
        thread_id=entry.thread_id,
        timestamp=hub.timestamp(),
        reply_id=hub.new_id(),
    )
    return RunningTurn(shown, slot, to, hub.clock(), session=session)


def _interrupted(room: Room, entry: Entry) -> list[RunningTurn]:
    """Return the turns that new words end: in a room, those of the same author only."""
    return [
        turn
        for turn in room.turns.values()
        if not room.conversation.is_room or turn.shown.author.id == entry.author.id
    ]


# Prompts


async def answer(room: Room, session: Session, request: Answer) -> None:
    """Answer a prompt with values that its options have, or with a text."""
    await _answer(room, session, request, request.prompt_id, request.values)


async def _answer(
    room: Room, session: Session, request: Say | Answer, prompt_id: str, values: tuple[str, ...]
) -> None:
    prompt = room.prompts.get(prompt_id)
    if prompt is None:
        await _refuse_answer(room, session, request, prompt_id)
        return
    chosen = chosen_values(prompt.prompt, values)
    entry = prepared(room, session, request.entry, Kind.WORDS)
    entry.prompt_id = prompt_id

    def store_answer(store: Store) -> tuple[Kept, list[Outgoing]]:
        claim(store, room, session, entry.author)
        kept = store.keep(room.session_id, entry)
        if kept.is_duplicate:
            return kept, []
        store.close_prompt(room.session_id, prompt_id)
        row = _answer_message(room, prompt, kept.entry, "\n".join(chosen))
        store.put_outbox(room.session_id, row)
        return kept, [row]

    kept, rows = await room.hub.store.run(store_answer)
    session.show(Done(request, kept.entry, is_duplicate=kept.is_duplicate))
    if kept.is_duplicate:
        return
    room.show_entry(kept.entry)
    room.show(Said(room.name, kept.entry, False), session)
    close_prompt(room, prompt, PromptEnd.ANSWERED, TurnEvent.SETTLED)
    room.outbox.add(*rows)


async def _refuse_answer(
    room: Room, session: Session, request: Say | Answer, prompt_id: str
) -> None:
    """Refuse an answer to a prompt that is not open, unless it is the one that has closed it."""
    entry_id = request.entry.id
    kept = await room.hub.store.run(lambda store: store.find_entry(room.session_id, entry_id))
    if entry_id and kept is not None and kept.prompt_id == prompt_id:
        session.show(Done(request, kept, is_duplicate=True))
        return
    reason = "this prompt is not open: it was answered, its time is over, or it is unknown here"
    raise Refusal("prompt", reason, detail=prompt_id[:200])


def _answer_message(room: Room, prompt: OpenPrompt, entry: Entry, text: str) -> Outgoing:
    turn = room.open_turn_of(prompt)
    return Outgoing(
        message_id=f"{room.session_id}.{entry.number}.answer",
        to=turn.address if turn else room.hub.settings.agent,
        payload=words_for_agent(room.chat, entry, text),
        number=entry.number,
    )


def close_prompt(room: Room, prompt: OpenPrompt, how: PromptEnd, event: TurnEvent) -> None:
    """Close a prompt in memory, and show it; the turn goes on by the event."""
    turn = room.open_turn_of(prompt)
    room.remove_prompt(prompt.prompt.id, event)
    if turn is not None:
        room.show_turn(PromptClosed(room.name, prompt.prompt, how, False), turn)


async def cancel(room: Room, session: Session, request: Cancel) -> None:
    """Cancel turns; those that have ended already need none of it."""
    turns = [
        turn for turn in room.turns.values() if not request.turn or turn.shown.id == request.turn
    ]
    await cancel_turns(room, turns)
    session.show(Done(request))


# Entries for nobody in particular


async def post(room: Room, session: Session, request: Post) -> None:
    """Keep an entry and show it."""
    entry = prepared(room, session, request.entry, Kind.POST)

    def store_post(store: Store) -> Kept:
        claim(store, room, session, entry.author)
        return store.keep(room.session_id, entry)

    kept = await room.hub.store.run(store_post)
    session.show(Done(request, kept.entry, is_duplicate=kept.is_duplicate))
    if not kept.is_duplicate:
        room.show_entry(kept.entry)
        room.show(Posted(room.name, kept.entry, False), session)


async def amend(room: Room, session: Session, request: Amend) -> None:
    """Replace an entry; who said it, when and what kind it is stay."""
    check_text("entry.id", request.entry.id)

    def store_amended(store: Store) -> Entry | None:
        old = store.find_entry(room.session_id, request.entry.id)
        if old is None or old.kind not in (Kind.WORDS, Kind.POST):
            return None
        entry = msgspec.structs.replace(
            request.entry,
            author=old.author,
            timestamp=old.timestamp,
            kind=old.kind,
            turn=old.turn,
            dialect=old.dialect,
        )
        return store.amend(room.session_id, entry)

    amended = await room.hub.store.run(store_amended)
    if amended is None:
        detail = request.entry.id
        raise Refusal("invalid", "there is no entry of this id to amend", detail=detail)
    session.show(Done(request, amended))
    room.show(Amended(room.name, amended, False), session)
