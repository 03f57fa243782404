"""The store of the gateway: what may be done with conversations, within one transaction.

`Store` is synchronous, for one thread at a time, and neither begins nor ends transactions: that is
the work of `StoreThread`. Several calls in one function are done together, or not at all:

    def say(store: Store) -> Kept:
        kept = store.keep(session_id, entry)
        if not kept.is_duplicate:
            store.put_outbox(session_id, outgoing(kept.entry))
        return kept

    kept = await thread.run(say)

A `StoreRefusal` that leaves such a function undoes all of it. Every method with a `session_id`
raises UnknownConversation if there is no such conversation.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Iterable

from busd.gateway.conversation import Entry, Prompt, Task, TaskUpdate
from busd.gateway.store_conversations import StoreConversations
from busd.gateway.store_entries import StoreEntries
from busd.gateway.store_limits import StoreLimits
from busd.gateway.store_members import StoreMembers
from busd.gateway.store_outbox import StoreOutbox
from busd.gateway.store_space import StoreSpace
from busd.gateway.store_tasks import StoreTasks
from busd.gateway.store_turns import StoreTurns
from busd.gateway.stored import (
    MAX_READ_ROWS,
    PAGE_BYTES,
    Conversation,
    Kept,
    OpenPrompt,
    OpenTurn,
    Outgoing,
    Page,
    StoreTotals,
)


class Store:
    """The conversations in an SQLite database, within the caller's transaction."""

    def __init__(
        self,
        db: sqlite3.Connection,
        limits: StoreLimits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._space = StoreSpace(db, limits, clock)
        self._conversations = StoreConversations(db, limits, clock, self._space)
        self._members = StoreMembers(db, limits, clock, self._conversations, self._space)
        self._entries = StoreEntries(db, clock, self._conversations, self._space)
        self._turns = StoreTurns(db, limits, clock, self._conversations, self._space)
        self._tasks = StoreTasks(db, limits, clock, self._conversations, self._space)
        self._outbox = StoreOutbox(db, limits, self._conversations, self._space)

    # Conversations

    def create(self, new: Conversation, held: Collection[str] = ()) -> Conversation:
        """Create a conversation and return it; whoever creates a room becomes its first member.

        If the user has too many, the one is deleted that was not used for the longest time: never
        a room, one of `held` (session ids), or one with open turns or unsent messages. Raise
        StoreFull if there is none. Raise NameTaken if there is a room of this name and the new one
        is a room, if both are the user's own, or if the session id or the address is taken.
        """
        created = self._conversations.create(new, held)
        if new.is_room:
            self._members.add(new.session_id, new.user)
        return created

    def make_room(self, session_id: str) -> Conversation:
        """Make a room of a user's own conversation, who becomes its first member.

        Raise NameTaken if there is a room of its name.
        """
        room = self._conversations.make_room(session_id)
        self._members.add(session_id, room.user)
        return room

    def find(self, user: str, name: str) -> Conversation | None:
        """Return what `user` enters by a name.

        That is the room of that name if the user is its member, else the user's own conversation.
        """
        return self._conversations.find(user, name)

    def find_room(self, name: str) -> Conversation | None:
        """Return the room of a name, whoever asks."""
        return self._conversations.find_room(name)

    def find_session(self, session_id: str) -> Conversation | None:
        return self._conversations.find_session(session_id)

    def find_address(self, address: str) -> Conversation | None:
        """Return the conversation with an address on the bus (without `events:`)."""
        return self._conversations.find_address(address)

    def touch(self, session_id: str) -> None:
        """Record that a conversation is used: it is deleted `keep_days` after that."""
        self._conversations.touch(self._conversations.row_id(session_id))

    def delete(self, session_id: str) -> None:
        """Delete a conversation with all that belongs to it."""
        self._conversations.delete(session_id)

    def unfinished(self, after: str = "", limit: int = 500) -> list[Conversation]:
        """Return conversations with open turns or unsent messages, for the time after a restart.

        They are ordered by session id; `after` is the last session id of the previous call.
        """
        return self._conversations.unfinished(after, limit)

    # Members of rooms

    def add_member(self, session_id: str, user: str) -> bool:
        """Make a user a member; return False if it is one. Raise StoreFull."""
        return self._members.add(session_id, user)

    def remove_member(self, session_id: str, user: str) -> bool:
        """End a membership; return False if there is none."""
        return self._members.remove(session_id, user)

    def is_member(self, session_id: str, user: str) -> bool:
        return self._members.is_member(session_id, user)

    def members(self, session_id: str, after: str = "", limit: int = 1_000) -> list[str]:
        """Return members in the order of their names, those after `after`."""
        return self._members.after(session_id, after, limit)

    # Authors and clients

    def bind_author(self, session_id: str, author_id: str, user: str) -> str:
        """Bind an author's id to a user unless it is bound; return the user it is bound to.

        It stays bound when a membership ends. Raise StoreFull if this user has 16 ids here.
        """
        return self._members.bind_author(session_id, author_id, user)

    def author_ids(self, session_id: str, user: str) -> list[str]:
        """Return the author's ids that are bound to a user."""
        return self._members.author_ids(session_id, user)

    def move_cursor(self, session_id: str, client: str, number: int) -> None:
        """Record the number of the last entry that a client was shown; it never moves back.

        `client` is any name. The last 200 of a conversation that were moved are remembered.
        """
        self._members.move_cursor(session_id, client, number)

    def cursor(self, session_id: str, client: str) -> int | None:
        """Return the number of the last entry that a client was shown, None if unknown."""
        return self._members.cursor(session_id, client)

    # Entries

    def keep(self, session_id: str, entry: Entry, origin: str = "") -> Kept:
        """Keep an entry, which must have an id; it gets the next number.

        If there is one with this id, or with this `origin` (sender and id of a message of the bus),
        that one is returned as a duplicate. Beyond the limits the oldest entries are deleted; raise
        StoreFull if that would not help.
        """
        return self._entries.keep(session_id, entry, origin)

    def amend(self, session_id: str, entry: Entry) -> Entry | None:
        """Replace the entry of the same id; return it with its number, or None if there is none.

        Without a timestamp, it keeps that of the old one. Raise StoreFull as `keep` does.
        """
        return self._entries.amend(session_id, entry)

    def find_entry(self, session_id: str, entry_id: str) -> Entry | None:
        return self._entries.find_entry(session_id, entry_id)

    def find_origin(self, session_id: str, origin: str) -> Entry | None:
        """Return the entry that was kept with this origin."""
        return self._entries.find_origin(session_id, origin)

    def page(
        self,
        session_id: str,
        *,
        after: str = "",
        since: int = 0,
        before: int = 0,
        last: int = 50,
        max_bytes: int = PAGE_BYTES,
    ) -> Page:
        """Return the last entries of a range, oldest first, and whether it has earlier ones.

        The range begins after the entry with the id `after`; if that is not kept (any more), after
        the number `since`. It ends before the number `before` (0: with the newest entry). At least
        one entry is returned, however large, if the range has one and `last` is not 0.
        """
        return self._entries.page(session_id, after, since, before, last, max_bytes)

    # Turns

    def put_turn(self, session_id: str, turn: OpenTurn) -> None:
        """Add an open turn, or replace the one with the same `turn.id` and slot. Raise StoreFull.

        One that has ended is open again. `turn.text` is stored as it is now.
        """
        self._turns.put_turn(session_id, turn)

    def turns(self, session_id: str) -> list[OpenTurn]:
        """Return all open turns, in the order in which they were put first."""
        return self._turns.turns(session_id)

    def end_turn(
        self, session_id: str, turn_id: str, slot: int = 0, how: str = ""
    ) -> list[Prompt] | None:
        """End a turn; return its prompts that were open, or None if there is no such open turn."""
        return self._turns.end_turn(session_id, turn_id, slot, how)

    def how_ended(
        self, session_id: str, turn_id: str, slot: int | None = None
    ) -> list[tuple[int, str]]:
        """Return slot and `how` of a turn's ends that are among the last 100 (None: any slot)."""
        return self._turns.how_ended(session_id, turn_id, slot)

    # Prompts

    def put_prompt(self, session_id: str, prompt: OpenPrompt, *, reopens: bool = False) -> bool:
        """Add an open prompt, or replace the one with the same id of the same turn and slot.

        Return False if the id belongs to a prompt of another turn, or to one that was closed and
        `reopens` is False. Raise StoreFull.
        """
        return self._turns.put_prompt(session_id, prompt, reopens)

    def prompts(self, session_id: str) -> list[OpenPrompt]:
        """Return all open prompts, in the order in which they were put first."""
        return self._turns.prompts(session_id)

    def close_prompt(self, session_id: str, prompt_id: str) -> OpenPrompt | None:
        """Close a prompt; return it, or None if there is no such open prompt."""
        return self._turns.close_prompt(session_id, prompt_id)

    def knows_prompt(self, session_id: str, prompt_id: str) -> bool:
        """Return whether there is such a prompt, open or among the last 100 that were closed."""
        return self._turns.knows_prompt(session_id, prompt_id)

    # Tasks

    def put_task(self, session_id: str, task: Task, update: TaskUpdate) -> Task:
        """Create or change a task; return its new state with its last 100 updates.

        Members of `task` that are unset stay as they were; `data` is merged as RFC 7396 describes
        (objects within it, too; null removes a member); `history` is ignored. If there are too
        many, the task that ended first is deleted; raise StoreFull if none has ended.
        """
        return self._tasks.put(session_id, task, update)

    def find_task(self, session_id: str, task_id: str) -> Task | None:
        return self._tasks.find(session_id, task_id)

    def tasks(self, session_id: str, max_bytes: int = PAGE_BYTES) -> list[Task]:
        """Return the tasks that were changed last, in the order of these changes."""
        return self._tasks.all(session_id, max_bytes)

    # Read receipts

    def mark_read(self, session_id: str, ids: Iterable[str], reader: str, at: str) -> list[str]:
        """Record that somebody has read entries at a time (as it is to be shown).

        Return the ids of those that are kept and that this reader had not read before.
        """
        return self._entries.mark_read(session_id, ids, reader, at)

    def readers(
        self, session_id: str, ids: Iterable[str], limit: int = MAX_READ_ROWS
    ) -> dict[str, dict[str, str]]:
        """Return who has read entries and when, by the id of each entry that is kept."""
        return self._entries.readers(session_id, ids, limit)

    # Messages for the bus

    def put_outbox(self, session_id: str, *messages: Outgoing) -> None:
        """Add messages that are to be sent in this order. Raise StoreFull."""
        self._outbox.put(session_id, messages)

    def outbox(self, session_id: str, limit: int = 100) -> list[Outgoing]:
        """Return the first unsent messages, in the order in which they were put."""
        return self._outbox.first(session_id, limit)

    def remove_outbox(self, session_id: str, message_id: str) -> bool:
        """Delete a message that the bus has accepted; return False if there is none."""
        return self._outbox.remove(session_id, message_id)

    # All conversations

    def totals(self) -> StoreTotals:
        return self._space.totals()

    def upkeep(self, held: Collection[str] = ()) -> bool:
        """Do a little of what is due; return False if nothing is.

        Deletes entries, tasks and read receipts that are older than `keep_days`; then conversations
        without entries that were not used for as long, except those of `held` (session ids) and
        those with open turns or unsent messages. Returns free pages to the file system.
        """
        return self._space.upkeep(held)
