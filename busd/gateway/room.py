"""A room: one conversation while it is held in memory.

It is held while clients are in it, turns are open or messages wait for the bus. What changes it is
a step of its `order`: first the store is changed, then, without waiting, the room; then it is
shown. So all clients see the same things in the same order, that of the numbers of the entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import structlog

from busd.gateway.conversation import Author, Entry, Prompt
from busd.gateway.events import (
    Amended,
    Arrived,
    ContextShared,
    Delta,
    Departed,
    Notified,
    Posted,
    PromptClosed,
    Prompted,
    Read,
    Replied,
    Said,
    Stepped,
    TaskChanged,
    TurnBegan,
    TurnEnded,
    TurnFailed,
)
from busd.gateway.messages import Chat, turn_of
from busd.gateway.order import Order
from busd.gateway.outbox import Outbox
from busd.gateway.stored import StoreFailed, StoreRefusal
from busd.gateway.turns import AGENT_PREFIX, RunningTurn, TurnEvent, TurnKey

if TYPE_CHECKING:
    from busd.gateway.hub import Hub
    from busd.gateway.session import Session
    from busd.gateway.store import Store
    from busd.gateway.stored import Conversation, OpenPrompt, OpenTurn, Outgoing
    from busd.rpc.reading import Id

log = structlog.get_logger("busd.gateway")

MAX_CURSORS = 64  # beyond so many clients their cursors are not recorded after each reply
_MAX_OUTBOX = 10_000_000  # the store has a limit of its own

TurnShown = Delta | Prompted | PromptClosed | Replied | Stepped | TurnBegan | TurnEnded | TurnFailed
Shared = Amended | ContextShared | Notified | Posted | Read | Replied | Said | TaskChanged
Shown = TurnShown | Shared


class Presence:
    """A client that is in a conversation."""

    def __init__(self, author: Author, client: str) -> None:
        self.author = author
        self.client = client  # the name of its cursor; "": it has none
        self.heard = 0  # the number of the last entry that was shown when it sent something
        self.until: int | None = None  # the same when its connection was closed, if it was


class Loaded(msgspec.Struct):
    """What the store knows of a conversation that is going to be held."""

    turns: list[OpenTurn]
    prompts: list[OpenPrompt]
    outbox: list[Outgoing]
    number: int  # of the last entry


class Room:
    """One conversation that is held: its clients, its open turns and prompts, and its outbox."""

    def __init__(self, hub: Hub, conversation: Conversation) -> None:
        self.hub = hub
        self.conversation = conversation
        self.chat = Chat(conversation.address, conversation.session_id, conversation.channel)
        self.order = Order(hub.tasks, self.release_if_unused)
        self.outbox = Outbox(self)
        self.present: dict[Session, Presence] = {}
        self.turns: dict[TurnKey, RunningTurn] = {}
        self.prompts: dict[str, OpenPrompt] = {}
        self.agent = ""  # the address of the default agent, if it is known
        self.number = 0  # of the last entry, which was shown to all who are present
        self.has_moved = False  # cursors are to be recorded
        self.is_loaded = False

    def __repr__(self) -> str:
        return f"<room {self.conversation.address}>"

    @property
    def name(self) -> str:
        """The name by which clients enter it."""
        return self.conversation.name

    @property
    def session_id(self) -> str:
        return self.conversation.session_id

    # Life

    async def load(self) -> None:
        """Read what is open, before anything else happens here."""
        if self.is_loaded:
            return
        loaded = await self.hub.store.run(self._read)
        now = self.hub.clock()
        unsent = {turn_of(row) for row in loaded.outbox}
        for each in loaded.turns:
            turn = RunningTurn(each.turn, each.slot, each.to, now)
            turn.message_id = each.message_id
            self.turns[turn.key] = turn
            if turn.key not in unsent:
                turn.advance(TurnEvent.ACCEPTED, now)
        for prompt in loaded.prompts:
            self.add_prompt(prompt)
        self.number = loaded.number
        self.is_loaded = True
        self.outbox.add(*loaded.outbox)

    def _read(self, store: Store) -> Loaded:
        this = self.session_id
        last = store.page(this, last=1).entries
        return Loaded(
            store.turns(this),
            store.prompts(this),
            store.outbox(this, _MAX_OUTBOX),
            last[-1].number if last else 0,
        )

    async def save(self) -> None:
        """Keep the answers so far, because the gateway stops; a step."""
        turns = [turn.stored(self.hub.clock()) for turn in self.turns.values() if turn.shown.text]
        if turns:

            def put(store: Store) -> None:
                for turn in turns:
                    store.put_turn(self.session_id, turn)

            await self.hub.store.run(put)

    @property
    def is_used(self) -> bool:
        return bool(self.present or self.turns or self.outbox) or not self.order.is_idle

    def release_if_unused(self) -> None:
        """Let go of it if nobody is here and nothing is under way."""
        if not self.is_used:
            self.hub.release(self)

    # Turns and prompts

    def sign(self, turn_id: Id | None, sender: str) -> RunningTurn | None:
        """Return the open turn that an agent speaks of, its oldest one without an id."""
        for turn in self.turns.values():
            is_meant = turn_id is None or turn.is_named(str(turn_id))
            if is_meant and turn.may_come_from(sender):
                turn.note_agent(sender)
                if not turn.to.startswith(AGENT_PREFIX):
                    self.agent = turn.address
                return turn
        return None

    def open_turn_of(self, prompt: OpenPrompt) -> RunningTurn | None:
        return self.turns.get((prompt.prompt.turn, prompt.slot))

    def add_prompt(self, prompt: OpenPrompt) -> None:
        self.prompts[prompt.prompt.id] = prompt
        if turn := self.open_turn_of(prompt):
            turn.prompts.add(prompt.prompt.id)
            turn.advance(TurnEvent.PROMPTED, self.hub.clock())

    def remove_prompt(self, prompt_id: str, event: TurnEvent) -> None:
        """Forget a prompt; if it was the last one of its turn, that goes on by an event."""
        prompt = self.prompts.pop(prompt_id)
        if turn := self.open_turn_of(prompt):
            turn.prompts.discard(prompt_id)
            if not turn.prompts:
                turn.advance(event, self.hub.clock())

    def end_turn(self, turn: RunningTurn, event: TurnEvent) -> list[Prompt]:
        """Forget a turn that has ended; return its prompts that were open."""
        turn.advance(event, self.hub.clock())
        self.turns.pop(turn.key, None)
        return [self.prompts.pop(each).prompt for each in sorted(turn.prompts)]

    def open_prompts(self) -> list[Prompt]:
        """Return the open prompts with the time that is left."""
        now = self.hub.clock()
        return [
            msgspec.structs.replace(
                each.prompt, seconds_left=None if each.closes is None else max(each.closes - now, 0)
            )
            for each in self.prompts.values()
        ]

    # Showing

    def show(self, event: Shared, cause: Session | None, *, to_cause: bool = True) -> None:
        """Show an event to all clients; `cause` is the one that caused it."""
        for session in list(self.present):
            if session is not cause:
                session.show(event)
            elif to_cause:
                session.show(msgspec.structs.replace(event, is_own=True))

    def show_turn(self, event: TurnShown, turn: RunningTurn) -> None:
        """Show an event of a turn to all clients."""
        own: TurnShown | None = None
        for session, presence in list(self.present.items()):
            if not self._is_own(turn, session, presence):
                session.show(event)
                continue
            own = own or msgspec.structs.replace(event, is_own=True)
            session.show(own)

    def _is_own(self, turn: RunningTurn, session: Session, presence: Presence) -> bool:
        """Return whether a client began a turn; its author may have connected anew since."""
        if turn.session is not None and turn.session in self.present:
            return session is turn.session
        return presence.author.id == turn.shown.author.id

    def show_entry(self, entry: Entry) -> None:
        """Note that an entry is about to be shown to all who are present."""
        self.number = max(self.number, entry.number)
        self.has_moved = self.has_moved or any(each.client for each in self.present.values())

    def show_presence(self, event: Arrived | Departed, cause: Session | None) -> None:
        for session in list(self.present):
            if session is not cause:
                session.show(event)

    def authors(self) -> list[Author]:
        """Return who is at the clients that are present."""
        return list({each.author.id: each.author for each in self.present.values()}.values())

    # Cursors: what clients with names were shown

    def note_heard(self, session: Session) -> None:
        """Note that a client has sent something, and so is alive."""
        if presence := self.present.get(session):
            presence.heard = self.number

    def note_closed(self, session: Session) -> None:
        """Note that a client is shown nothing from now on."""
        presence = self.present.get(session)
        if presence is not None and presence.until is None:
            presence.until = self.number

    def record_cursors(self, *, is_urgent: bool = False) -> None:
        """Record what clients were shown: a reply at once, the rest when the hub looks."""
        if self.has_moved and not (is_urgent and len(self.present) > MAX_CURSORS):
            self.has_moved = False
            self.order.put(self._record_cursors)

    async def _record_cursors(self) -> None:
        await self.record_cursors_of(*self.present.values())

    async def record_cursors_of(self, *presences: Presence) -> None:
        """Record what clients with names were shown, if the disk can take it; a step."""
        numbers: dict[str, int] = {}
        for each in presences:
            if each.client:
                shown = self.number if each.until is None else each.until
                numbers[each.client] = max(shown, numbers.get(each.client, 0))
        if not numbers:
            return

        def move(store: Store) -> None:
            for client, number in numbers.items():
                store.move_cursor(self.session_id, client, number)

        try:
            await self.hub.store.run(move)
        except (StoreFailed, StoreRefusal) as problem:
            log.warning("cursor.unrecorded", reason=str(problem))
