"""Full: the oldest entries are deleted, or the limit is named."""

from __future__ import annotations

import pytest

from busd.gateway.conversation import Author, Task, TaskUpdate
from busd.gateway.store_limits import StoreLimits
from busd.gateway.stored import StoreFull
from tests.gateway.store.conftest import OpenWith
from tests.gateway.store.opened import Opened, open_turn, outgoing, words

KIB = 1024


def sizes(store: Opened) -> list[int]:
    return [size for (size,) in store.select("SELECT bytes FROM conversation ORDER BY id")]


def test_beyond_the_number_of_entries_the_oldest_are_deleted(open_with: OpenWith) -> None:
    store = open_with(StoreLimits(entries=3))
    session = store.create()
    assert store.keep(session, *map(words, "abcde")) == [1, 2, 3, 4, 5]
    assert store.names(session) == ["c", "d", "e"]
    assert store.keep(session, words("a")) == [6]  # it is no duplicate of what is forgotten
    assert store.calls.totals().entries == 3


def test_beyond_the_bytes_of_a_conversation_the_oldest_are_deleted(open_with: OpenWith) -> None:
    store = open_with(StoreLimits(conversation_bytes=20 * KIB))
    session, other = store.create("c1"), store.create("c2")
    store.keep(other, words("other", "x" * 15 * KIB))
    for number in range(50):
        store.keep(session, words(str(number), "x" * KIB))
        assert sizes(store)[0] <= 20 * KIB
    names = store.names(session)
    assert names == [str(number) for number in range(50 - len(names), 50)]
    assert 14 <= len(names) <= 18
    assert store.names(other) == ["other"]


def test_a_large_entry_takes_the_place_of_many(open_with: OpenWith) -> None:
    store = open_with(StoreLimits(conversation_bytes=20 * KIB))
    session = store.create()
    store.keep(session, *(words(str(number), "x" * KIB) for number in range(10)))
    store.keep(session, words("large", "x" * 17 * KIB))
    assert store.names(session)[-1] == "large"
    assert len(store.names(session)) == 2


def test_an_entry_that_is_too_large_is_refused_and_deletes_nothing(open_with: OpenWith) -> None:
    store = open_with(StoreLimits(conversation_bytes=20 * KIB))
    session = store.create()
    store.keep(session, words("a"), words("b"))
    with pytest.raises(StoreFull) as caught:
        store.keep(session, words("large", "x" * 20 * KIB))
    assert (caught.value.limit, caught.value.value) == ("conversation_bytes", 20 * KIB)
    with pytest.raises(StoreFull):
        store.calls.amend(session, words("b", "x" * 20 * KIB))
    assert store.names(session) == ["a", "b"]
    assert store.keep(session, words("c")) == [3]


def test_an_amended_entry_may_take_the_place_of_older_ones_only(open_with: OpenWith) -> None:
    store = open_with(StoreLimits(conversation_bytes=20 * KIB))
    session = store.create()
    store.keep(session, *(words(name, "x" * 4 * KIB) for name in "abcd"))
    store.calls.amend(session, words("c", "x" * 9 * KIB))
    assert store.names(session) == ["b", "c", "d"]
    with pytest.raises(StoreFull):
        store.calls.amend(session, words("b", "x" * 9 * KIB))
    assert store.names(session) == ["b", "c", "d"]


def test_what_is_no_entry_counts_too(open_with: OpenWith) -> None:
    store = open_with(StoreLimits(conversation_bytes=20 * KIB))
    session = store.create()
    store.keep(session, *(words(name, "x" * 4 * KIB) for name in "abc"))
    store.calls.put_outbox(session, outgoing("m", b"x" * 10 * KIB))
    assert store.names(session) == ["b", "c"]
    task = Task(task_id="t", title="x" * 8 * KIB)
    store.calls.put_task(session, task, TaskUpdate("1", Author("ann")))
    assert store.names(session) == []
    with pytest.raises(StoreFull) as caught:
        store.calls.put_outbox(session, outgoing("n", b"x" * 4 * KIB))
    assert caught.value.limit == "conversation_bytes"


def test_many_readers_cost_the_oldest_entries(open_with: OpenWith) -> None:
    store = open_with(StoreLimits(conversation_bytes=20 * KIB))
    session = store.create(is_room=True)
    store.keep(session, words("a"), words("b"))
    store.do(lambda s: [s.mark_read(session, ["a"], f"reader {n}", "now") for n in range(200)])
    assert "a" not in store.names(session)
    assert sizes(store)[0] <= 20 * KIB
    assert store.select("SELECT count(*) FROM receipt") == [(0,)]


def test_if_all_is_full_whoever_keeps_most_loses_first(open_with: OpenWith) -> None:
    store = open_with(StoreLimits(total_bytes=200 * KIB))
    small = store.create("small", "ben")
    store.keep(small, *(words(str(number), "x" * KIB) for number in range(20)))
    floods = [store.create(f"c{number}", "eve") for number in range(5)]
    for number in range(300):
        store.keep(floods[number % 5], words(str(number), "x" * KIB))
        assert store.calls.totals().bytes <= 200 * KIB
    assert len(store.names(small)) == 20
    assert all(store.names(each) for each in floods)
    store.keep(small, words("more", "x" * KIB))
    assert len(store.names(small)) == 21


def test_if_all_is_full_and_nothing_can_be_deleted_the_limit_is_named(open_with: OpenWith) -> None:
    store = open_with(StoreLimits(total_bytes=100 * KIB))
    busy = store.create("busy", "eve")
    store.calls.put_outbox(busy, outgoing("m", b"x" * 90 * KIB))
    session = store.create()
    store.keep(session, words("a", "x" * 4 * KIB))
    with pytest.raises(StoreFull) as caught:
        store.keep(session, words("b", "x" * 10 * KIB))
    assert (caught.value.limit, caught.value.value) == ("total_bytes", 100 * KIB)
    assert store.names(session) == ["a"]
    store.keep(session, words("b", "x" * 7 * KIB))  # in the place of "a"
    assert store.names(session) == ["b"]
    with pytest.raises(StoreFull):
        store.calls.put_turn(busy, open_turn("x" * 10 * KIB))


def test_entries_make_room_for_new_conversations(open_with: OpenWith) -> None:
    store = open_with(StoreLimits(total_bytes=100 * KIB))
    session = store.create("c", "eve")
    store.keep(session, *(words(str(number), "x" * KIB) for number in range(80)))
    for number in range(100):
        store.create(f"c{number}")
    assert store.calls.totals().bytes <= 100 * KIB
    assert store.names(session)
