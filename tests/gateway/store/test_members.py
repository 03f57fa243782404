"""Members of rooms, the ids that users speak by, and what clients were shown."""

from __future__ import annotations

from functools import partial

import pytest

from busd.gateway.store import Store
from busd.gateway.store_limits import StoreLimits
from busd.gateway.stored import MAX_AUTHORS, MAX_CURSORS, StoreFull
from tests.gateway.store.conftest import OpenWith
from tests.gateway.store.opened import Opened


def test_whoever_creates_a_room_is_its_first_member(store: Opened) -> None:
    room = store.create(is_room=True)
    assert store.calls.members(room) == ["ann"]
    assert store.calls.is_member(room, "ann")
    assert not store.calls.is_member(room, "ben")


def test_a_membership_begins_and_ends_once(store: Opened) -> None:
    room = store.create(is_room=True)
    begun = store.do(lambda s: [s.add_member(room, "ben"), s.add_member(room, "ben")])
    ended = store.do(lambda s: [s.remove_member(room, "ben"), s.remove_member(room, "ben")])
    assert (begun, ended) == ([True, False], [True, False])
    assert store.calls.find("ben", "lobby") is None


def test_a_room_has_10_000_members_and_no_more(store: Opened) -> None:
    room = store.create(is_room=True)
    names = [f"user {number:05}" for number in range(9_999)]
    store.do(lambda s: [s.add_member(room, name) for name in names])
    with pytest.raises(StoreFull) as caught:
        store.calls.add_member(room, "one too many")
    assert caught.value.limit == "members"
    assert store.calls.is_member(room, "user 05000")
    pages = [store.calls.members(room)]
    while last := pages[-1]:
        assert len(last) <= 1_000
        pages.append(store.do(partial(Store.members, session_id=room, after=last[-1])))
    assert [name for page in pages for name in page] == ["ann", *names]


def test_an_authors_id_belongs_to_whoever_used_it_first(store: Opened) -> None:
    room = store.create(is_room=True)
    owners = store.do(lambda s: [s.bind_author(room, "u1", user) for user in ("ann", "ben", "ann")])
    assert owners == ["ann"] * 3
    store.calls.bind_author(room, "u2", "ann")
    assert store.calls.author_ids(room, "ann") == ["u1", "u2"]
    assert store.calls.author_ids(room, "ben") == []
    store.calls.remove_member(room, "ann")
    assert store.calls.bind_author(room, "u1", "ben") == "ann"


def test_a_user_has_few_ids_in_one_conversation(store: Opened) -> None:
    session = store.create()

    def bind(s: Store, user: str) -> None:
        for number in range(MAX_AUTHORS):
            s.bind_author(session, f"{user} {number}", user)

    store.do(lambda s: bind(s, "ann"))
    with pytest.raises(StoreFull) as caught:
        store.calls.bind_author(session, "one too many", "ann")
    assert caught.value.limit == "authors"
    assert store.calls.bind_author(session, "ann 0", "ann") == "ann"
    store.do(lambda s: bind(s, "ben"))


def test_a_cursor_never_moves_back(store: Opened) -> None:
    session = store.create()
    assert store.calls.cursor(session, "web") is None
    for number in (3, 7, 5):
        store.calls.move_cursor(session, "web", number)
    assert store.calls.cursor(session, "web") == 7


def test_the_cursors_that_moved_last_are_remembered(store: Opened) -> None:
    session = store.create()
    for number in range(MAX_CURSORS + 2):
        store.now += 1
        store.calls.move_cursor(session, f"client {number}", 1)
    cursors = store.do(
        lambda s: [s.cursor(session, f"client {number}") for number in range(MAX_CURSORS + 2)]
    )
    assert cursors == [None, None, *[1] * MAX_CURSORS]


def test_members_can_be_limited(open_with: OpenWith) -> None:
    store = open_with(StoreLimits(members=2))
    room = store.create(is_room=True)
    assert store.calls.add_member(room, "ben")
    assert not store.calls.add_member(room, "ben")  # no refusal: there is no need for room
    with pytest.raises(StoreFull):
        store.calls.add_member(room, "eve")
