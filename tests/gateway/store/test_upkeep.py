"""What is old is deleted a little at a time, and the file gets smaller."""

from __future__ import annotations

from busd.gateway.conversation import Author, Task, TaskUpdate
from busd.gateway.store_limits import StoreLimits
from busd.gateway.stored import StoreTotals
from tests.gateway.store.conftest import OpenWith
from tests.gateway.store.opened import DAY, Opened, open_turn, outgoing, words

LIMITS = StoreLimits(keep_days=10.0)


def test_old_entries_are_deleted_with_their_receipts(open_with: OpenWith) -> None:
    store = open_with(LIMITS)
    session = store.create()
    store.keep(session, words("old"))
    store.calls.mark_read(session, ["old"], "ben", "now")
    store.now += 6 * DAY
    store.keep(session, words("new"))
    assert store.upkeep() == 0
    store.now += 6 * DAY
    store.upkeep()
    assert store.names(session) == ["new"]
    assert store.select("SELECT count(*) FROM receipt") == [(0,)]
    assert store.keep(session, words("newer")) == [3]


def test_many_old_entries_are_deleted_in_slices(open_with: OpenWith) -> None:
    store = open_with(LIMITS)
    session = store.create()
    store.keep(session, *(words(str(number)) for number in range(2_000)))
    store.now += 11 * DAY
    assert store.calls.upkeep()
    assert 1_000 < len(store.names(session)) < 2_000
    assert store.upkeep() >= 3
    assert store.calls.totals().entries == 0


def test_old_tasks_are_deleted(open_with: OpenWith) -> None:
    store = open_with(LIMITS)
    session = store.create()
    for name in ("old", "new"):
        task = Task(task_id=name)
        store.calls.put_task(session, task, TaskUpdate("1", Author("ann")))
        store.now += 6 * DAY
    store.upkeep()
    assert [each.task_id for each in store.calls.tasks(session)] == ["new"]


def test_an_unused_conversation_without_entries_is_deleted(open_with: OpenWith) -> None:
    store = open_with(LIMITS)
    empty, full, room = store.create("empty"), store.create("full"), store.create(is_room=True)
    store.keep(full, words("a"))
    store.now += 9 * DAY
    store.keep(full, words("b"))
    store.calls.touch(room)
    store.now += 2 * DAY
    store.upkeep()
    found = [store.calls.find_session(each) for each in (empty, full, room)]
    assert [bool(each) for each in found] == [False, True, True]
    store.now += 11 * DAY
    store.upkeep()
    assert store.calls.totals() == StoreTotals(0, 0, 0, 0, 0)
    assert store.select("SELECT * FROM member") == []


def test_what_is_held_or_unfinished_stays(open_with: OpenWith) -> None:
    store = open_with(LIMITS)
    held, turn, unsent, ended = (store.create(each) for each in "abcd")
    store.calls.put_turn(turn, open_turn("t"))
    store.calls.put_outbox(unsent, outgoing("m"))
    store.calls.put_turn(ended, open_turn("t"))
    store.calls.end_turn(ended, "t")
    store.now += 100 * DAY
    store.upkeep({held})
    sessions = (held, turn, unsent, ended)
    found = [store.calls.find_session(each) for each in sessions]
    assert [bool(each) for each in found] == [True, True, True, False]


def test_the_file_gets_smaller(open_with: OpenWith) -> None:
    store = open_with(LIMITS)
    session = store.create()
    store.keep(session, *(words(str(number), "x" * 10_000) for number in range(500)))
    store.close()
    before = store.path.stat().st_size
    assert before > 5_000_000
    store.now += 11 * DAY
    store.upkeep()
    store.close()
    assert store.path.stat().st_size < 1_000_000
    assert store.upkeep() == 0


def test_an_unused_store_has_nothing_to_do(store: Opened) -> None:
    assert store.upkeep() == 0
