"""Routes: limits, and what is remembered; what matches is in the property tests."""

from __future__ import annotations

import pytest

from busd.bus import routes as module
from busd.bus.routes import MAX_GLOBS, Routes
from busd.errors import Busy, MalformedAddress, MalformedPattern, NotSubscribed
from tests.properties.test_routes import Party

ALICE, BOB = Party("alice"), Party("bob")


def test_globs_that_are_not_prefixes_are_limited() -> None:
    routes = Routes()
    for number in range(MAX_GLOBS):
        routes.add(f"?:{number}", ALICE)
    with pytest.raises(Busy) as refused:
        routes.add("one:?:more", ALICE)
    assert refused.value.data["limit"] == MAX_GLOBS
    assert routes.match("one:x:more") == ()


def test_a_full_list_of_globs_still_takes_known_ones_prefixes_and_addresses() -> None:
    routes = Routes()
    for number in range(MAX_GLOBS):
        routes.add(f"?:{number}", ALICE)
    for pattern in ("?:0", "tg:*", "tg:1"):
        routes.add(pattern, BOB)
    assert routes.match("x:0") == (ALICE, BOB)
    assert routes.match("tg:1") == (BOB,)


def test_a_glob_that_is_removed_makes_room() -> None:
    routes = Routes()
    for number in range(MAX_GLOBS):
        routes.add(f"?:{number}", ALICE)
    routes.remove("?:0", ALICE)
    routes.add("one:?:more", ALICE)
    assert routes.match("one:x:more") == (ALICE,)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 10)
    routes = Routes()
    routes.add("a:*", ALICE)
    for number in range(100):
        assert routes.match(f"a:{number}") == (ALICE,)
        assert len(routes.remembered) <= 10


def test_malformed_addresses_are_not_remembered() -> None:
    routes = Routes()
    for address in ("", "a b", "a*"):
        with pytest.raises(MalformedAddress):
            routes.match(address)
    assert not routes.remembered


def test_an_exact_subscription_forgets_only_its_own_address() -> None:
    routes = Routes()
    routes.add("a:*", ALICE)
    routes.match("a:1")
    routes.match("a:2")
    routes.add("a:1", BOB)
    assert list(routes.remembered) == ["a:2"]
    assert routes.match("a:1") == (BOB, ALICE)


def test_adding_twice_is_adding_once() -> None:
    routes = Routes()
    for pattern in ("a", "a*", "?"):
        routes.add(pattern, ALICE)
        routes.add(pattern, ALICE)
        routes.remove(pattern, ALICE)
        with pytest.raises(NotSubscribed) as refused:
            routes.remove(pattern, ALICE)
        assert refused.value.data["address"] == pattern
    assert routes.match("a") == ()


def test_removing_what_another_has_is_refused() -> None:
    routes = Routes()
    for pattern in ("a", "a*", "?"):
        routes.add(pattern, ALICE)
        with pytest.raises(NotSubscribed):
            routes.remove(pattern, BOB)
    assert routes.match("a") == (ALICE,)


def test_a_malformed_pattern_is_refused_and_leaves_nothing() -> None:
    routes = Routes()
    with pytest.raises(MalformedPattern):
        routes.add("a b*", ALICE)
    with pytest.raises(NotSubscribed):
        routes.remove("a b*", ALICE)
    assert not routes._prefixes


def test_a_prefix_longer_than_the_address_does_not_match() -> None:
    routes = Routes()
    routes.add("abc*", ALICE)
    assert routes.match("ab") == ()
    assert routes.match("abc") == (ALICE,)
