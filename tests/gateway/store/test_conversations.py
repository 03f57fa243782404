"""Conversations are found by user and name, by room, by session id and by address."""

from __future__ import annotations

import msgspec
import pytest

from busd.gateway.store import Store
from busd.gateway.store_limits import StoreLimits
from busd.gateway.stored import NameTaken, StoreFull, UnknownConversation
from tests.gateway.store.conftest import OpenWith
from tests.gateway.store.opened import (
    DAY,
    NOW,
    Opened,
    conversation,
    open_turn,
    outgoing,
    words,
)


def test_a_conversation_is_found_as_it_was_created(store: Opened) -> None:
    new = conversation()
    created = store.calls.create(new)
    assert created == msgspec.structs.replace(new, created=NOW, last_used=NOW)
    finders = (
        lambda s: s.find("ann", "lobby"),
        lambda s: s.find_session("lobby-ann"),
        lambda s: s.find_address("tkr:lobby-ann"),
    )
    assert [store.do(find) for find in finders] == [created] * 3
    assert store.calls.find("ann", "other") is None


def test_two_users_have_conversations_of_one_name(store: Opened) -> None:
    store.create("lobby", "ann")
    assert store.calls.find("ben", "lobby") is None
    store.create("lobby", "ben")
    for user in ("ann", "ben"):
        found = store.calls.find(user, "lobby")
        assert found
        assert found.user == user


def test_a_member_enters_the_room_and_anybody_else_their_own(store: Opened) -> None:
    own = store.create("lobby", "ben")
    room = store.create("lobby", "ann", is_room=True)
    found = store.do(lambda s: [s.find(user, "lobby") for user in ("ann", "ben", "eve")])
    assert [each.session_id if each else "" for each in found] == [room, own, ""]
    store.calls.add_member(room, "ben")
    found = store.do(lambda s: [s.find("ben", "lobby"), s.find_room("lobby")])
    assert [each.session_id if each else "" for each in found] == [room, room]
    assert found[0]
    assert found[0].is_room


def test_a_room_of_others_does_not_take_a_users_name(store: Opened) -> None:
    store.create("lobby", "ann", is_room=True)
    own = store.create("lobby", "ben")
    found = store.calls.find("ben", "lobby")
    assert found
    assert found.session_id == own


def test_a_name_can_be_taken_once(store: Opened) -> None:
    store.create("lobby", "ann")
    store.create("lobby", "ann", is_room=True)
    with pytest.raises(NameTaken):
        store.create("lobby", "ann")
    again = msgspec.structs.replace(conversation(is_room=True), session_id="x", address="x:x")
    with pytest.raises(NameTaken):
        store.calls.create(again)
    same_address = msgspec.structs.replace(conversation("other"), address="tkr:lobby-ann")
    with pytest.raises(NameTaken):
        store.calls.create(same_address)
    assert store.calls.totals().conversations == 2


def test_an_unknown_conversation_is_named_as_such(store: Opened) -> None:
    with pytest.raises(UnknownConversation) as caught:
        store.keep("nobodys", words("a"))
    assert caught.value.session_id == "nobodys"
    assert store.calls.find_session("nobodys") is None


def test_a_deleted_conversation_leaves_nothing_behind(store: Opened) -> None:
    session = store.create(is_room=True)
    store.keep(session, words("a"), words("b"))

    def fill(s: Store) -> None:
        s.put_turn(session, open_turn("a"))
        s.put_outbox(session, outgoing("m"))
        s.mark_read(session, ["a"], "ben", "now")
        s.bind_author(session, "u1", "ann")
        s.move_cursor(session, "client", 2)
        s.delete(session)

    store.do(fill)
    tables = ("conversation", "entry", "receipt", "turn", "outbox", "member", "author", "cursor")
    for table in (*tables, "owner"):
        assert store.select(f"SELECT count(*) FROM {table}") == [(0,)], table
    assert store.select("SELECT * FROM total") == [(0, 0, 0)]


def test_what_is_unfinished_is_found_after_a_restart(store: Opened) -> None:
    sessions = [store.create(f"c{number}") for number in range(6)]

    def begin(s: Store) -> None:
        s.put_turn(sessions[1], open_turn("t"))
        s.put_outbox(sessions[3], outgoing("m"))
        s.put_turn(sessions[4], open_turn("t"))
        s.put_turn(sessions[5], open_turn("t"))
        s.end_turn(sessions[5], "t")

    store.do(begin)
    store.close()
    first = store.calls.unfinished(limit=2)
    rest = store.calls.unfinished(after=first[-1].session_id)
    assert [each.name for each in first + rest] == ["c1", "c3", "c4"]


def test_beyond_the_limit_the_least_recently_used_one_is_deleted(open_with: OpenWith) -> None:
    store = open_with(StoreLimits(conversations_per_user=3))
    oldest, held, busy = (store.create(f"c{number}") for number in range(3))
    store.calls.put_outbox(busy, outgoing("m"))
    with pytest.raises(StoreFull) as caught:  # all are in use
        store.create("new")
    assert (caught.value.limit, caught.value.value) == ("conversations_per_user", 3)
    store.create("new", "ben")  # another user
    store.now += DAY
    store.calls.create(conversation("new"), held={oldest})
    assert store.calls.find_session(held) is None
    with pytest.raises(StoreFull):
        store.calls.create(conversation("newer"), held={oldest})
    store.calls.create(conversation("newer"))
    assert store.calls.find_session(oldest) is None
    assert store.calls.find_session(busy)


def test_a_room_is_not_deleted_for_a_new_conversation(open_with: OpenWith) -> None:
    store = open_with(StoreLimits(conversations_per_user=1))
    store.create("room", is_room=True)
    store.now += DAY
    with pytest.raises(StoreFull):
        store.create("new")


def test_a_conversation_that_was_touched_is_not_the_least_recently_used(
    open_with: OpenWith,
) -> None:
    store = open_with(StoreLimits(conversations_per_user=2))
    first, second = store.create("c1"), store.create("c2")
    store.now += DAY
    store.calls.touch(first)
    store.now += DAY
    store.create("c3")
    assert store.calls.find_session(second) is None
    found = store.calls.find_session(first)
    assert found
    assert found.last_used == NOW + DAY
