"""Whatever is done, the counts of the triggers are those of the rows."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from busd.gateway.conversation import Author, Task, TaskUpdate
from busd.gateway.schema import BELONGINGS
from busd.gateway.store_limits import StoreLimits
from busd.gateway.stored import StoreRefusal
from tests.gateway.store.opened import (
    DAY,
    Opened,
    conversation,
    open_prompt,
    open_turn,
    outgoing,
    words,
)

LIMITS = StoreLimits(
    keep_days=10.0,
    total_bytes=30_000,
    conversations_per_user=3,
    entries=8,
    conversation_bytes=12_000,
    members=3,
    tasks=3,
    open_turns=2,
    open_prompts=2,
    outbox=4,
)
names = st.sampled_from("abcdefgh")
USERS = ("ann", "ben")
users = st.sampled_from(USERS)
texts = st.integers(0, 5_000).map(lambda size: "x" * size)
sessions = st.integers(0, 5)
_SUM = " + ".join(
    f"(SELECT ifnull(sum(size), 0) FROM {table} WHERE conversation = conversation.id)"
    for table in ("receipt", *BELONGINGS)
)
_WRONG = f"""
SELECT session_id FROM conversation WHERE bytes != 512 + {_SUM}
OR entries != (SELECT count(*) FROM entry WHERE conversation = conversation.id)
"""
_WRONG_OWNERS = """
SELECT user, conversations, bytes FROM owner EXCEPT
SELECT user, count(*), sum(bytes) FROM conversation GROUP BY user
"""
_REAL_TOTAL = "SELECT count(*), ifnull(sum(entries), 0), ifnull(sum(bytes), 0) FROM conversation"


class Counts(RuleBasedStateMachine):
    """Random operations on a small store, which is full most of the time."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._store = Opened(Path(self._folder.name) / "gateway.db", LIMITS)
        self._sessions = [self._store.create(name, user) for name in "ab" for user in USERS]
        self._sessions += [self._store.create(user, user, is_room=True) for user in USERS]

    def teardown(self) -> None:
        self._store.close()
        self._folder.cleanup()

    @rule(place=sessions, name=names, user=users, is_room=st.booleans())
    def create(self, place: int, name: str, user: str, is_room: bool) -> None:
        new = conversation(name, user, is_room=is_room)
        self._try(lambda s: s.create(new))
        self._sessions[place] = new.session_id

    @rule(place=sessions)
    def delete(self, place: int) -> None:
        self._try(lambda s: s.delete(self._sessions[place]))

    @rule(place=sessions, ids=st.lists(names, max_size=5), text=texts)
    def keep(self, place: int, ids: list[str], text: str) -> None:
        session = self._sessions[place]
        self._try(lambda s: [s.keep(session, words(each, text)) for each in ids])

    @rule(place=sessions, name=names, text=texts)
    def amend(self, place: int, name: str, text: str) -> None:
        self._try(lambda s: s.amend(self._sessions[place], words(name, text)))

    @rule(place=sessions, ids=st.lists(names, max_size=3), name=names)
    def read(self, place: int, ids: list[str], name: str) -> None:
        self._try(lambda s: s.mark_read(self._sessions[place], ids, name, "now"))

    @rule(place=sessions, name=names, ends=st.booleans(), text=texts)
    def turn(self, place: int, name: str, ends: bool, text: str) -> None:
        session = self._sessions[place]
        turn = open_turn(name)
        turn.turn.text = text
        if ends:
            self._try(lambda s: s.end_turn(session, name))
        else:
            self._try(lambda s: s.put_turn(session, turn))

    @rule(place=sessions, name=names, turn=names, closes=st.booleans(), reopens=st.booleans())
    def prompt(self, place: int, name: str, turn: str, closes: bool, reopens: bool) -> None:
        session = self._sessions[place]
        if closes:
            self._try(lambda s: s.close_prompt(session, name))
        else:
            self._try(lambda s: s.put_prompt(session, open_prompt(name, turn), reopens=reopens))

    @rule(place=sessions, name=names, text=texts, status=st.sampled_from(["done", "open"]))
    def task(self, place: int, name: str, text: str, status: str) -> None:
        task = Task(task_id=name, title=text, status=status)
        update = TaskUpdate("1", Author("ann"))
        self._try(lambda s: s.put_task(self._sessions[place], task, update))

    @rule(place=sessions, name=names, text=texts, is_sent=st.booleans())
    def message(self, place: int, name: str, text: str, is_sent: bool) -> None:
        session = self._sessions[place]
        if is_sent:
            self._try(lambda s: s.remove_outbox(session, name))
        else:
            self._try(lambda s: s.put_outbox(session, outgoing(name, text.encode())))

    @rule(place=sessions, user=names, leaves=st.booleans())
    def member(self, place: int, user: str, leaves: bool) -> None:
        session = self._sessions[place]
        if leaves:
            self._try(lambda s: s.remove_member(session, user))
        else:
            self._try(lambda s: [s.add_member(session, user), s.bind_author(session, user, user)])

    @rule(place=sessions, name=names, number=st.integers(0, 9))
    def cursor(self, place: int, name: str, number: int) -> None:
        self._try(lambda s: s.move_cursor(self._sessions[place], name, number))

    @rule(days=st.sampled_from([0, 1, 6]))
    def time_goes_by(self, days: int) -> None:
        self._store.now += days * DAY
        self._store.upkeep()

    def _try(self, operation: object) -> None:
        try:
            self._store.do(operation)  # type: ignore[arg-type] # of any result
        except StoreRefusal:
            pass  # it has changed nothing: the invariant shows

    @invariant()
    def counts_are_right(self) -> None:
        select = self._store.select
        assert select(_WRONG) == []
        assert select(_WRONG_OWNERS) == []
        total = select("SELECT * FROM total")
        assert total == select(_REAL_TOTAL)
        assert total[0][2] <= LIMITS.total_bytes
        assert select("SELECT * FROM conversation WHERE bytes > 12000") == []
        orphans = "SELECT entry FROM receipt WHERE entry NOT IN (SELECT id FROM entry)"
        assert select(orphans) == []
        for table in ("receipt", *BELONGINGS):
            query = "conversation NOT IN (SELECT id FROM conversation)"
            assert select(f"SELECT * FROM {table} WHERE {query}") == []


TestCounts = Counts.TestCase
TestCounts.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
