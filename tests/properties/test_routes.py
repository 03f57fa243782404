"""Routes find whom a naive look at every pattern finds, whatever came and went before."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busd.bus.address import compile_glob
from busd.bus.bus import Bus
from busd.bus.delivery import Delivery
from busd.bus.message import Message
from busd.bus.routes import Routes
from busd.errors import NotSubscribed
from tests.simulation.oracle import matches


class Party:
    """A peer that only has a name."""

    bus: Bus
    shows_attempts = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.subscriptions: set[str] = set()

    def hand_over(self, message: Message, frame: bytes, delivery: Delivery) -> None:
        raise NotImplementedError


_ADDRESS = st.text(st.sampled_from("ab:[]"), min_size=1, max_size=5)
_PATTERN = st.one_of(
    _ADDRESS,
    _ADDRESS.map(lambda prefix: prefix + "*"),
    st.just("*"),
    st.text(st.sampled_from("ab:*?"), min_size=1, max_size=6),
    st.text(st.sampled_from("ab*?[]!-"), min_size=1, max_size=7),
)
_CHANGE = st.tuples(st.sampled_from(["add", "add", "remove"]), _PATTERN, st.integers(0, 3))


@given(st.lists(st.tuples(_CHANGE, st.lists(_ADDRESS, max_size=3)), max_size=25))
def test_routes_match_what_a_naive_search_does(
    history: list[tuple[tuple[str, str, int], list[str]]],
) -> None:
    routes, parties = Routes(), [Party(str(number)) for number in range(4)]
    subscribed: set[tuple[str, int]] = set()
    for (change, pattern, number), addresses in history:
        if change == "add":
            routes.add(pattern, parties[number])
            subscribed.add((pattern, number))
        elif (pattern, number) in subscribed:
            routes.remove(pattern, parties[number])
            subscribed.discard((pattern, number))
        else:
            with pytest.raises(NotSubscribed):
                routes.remove(pattern, parties[number])
        for address in addresses:
            found = [party.name for party in routes.match(address)]
            wanted = {str(who) for what, who in subscribed if matches(what, address)}
            assert sorted(found) == sorted(wanted)  # and nobody twice


@given(st.sets(st.tuples(_PATTERN, st.integers(0, 3)), max_size=20), st.lists(_ADDRESS))
def test_routes_are_empty_when_everything_is_undone(
    subscribed: set[tuple[str, int]], addresses: list[str]
) -> None:
    routes, parties = Routes(), [Party(str(number)) for number in range(4)]
    for pattern, number in subscribed:
        routes.add(pattern, parties[number])
    for address in addresses:
        routes.match(address)
    for pattern, number in subscribed:
        routes.remove(pattern, parties[number])
    assert not any((routes._exact, routes._prefixes, routes._prefix_lengths, routes._globs))
    assert not any(routes.remembered.values())


@given(st.text("ab.[]!-&~|^$\\é*?", max_size=9), st.text("ab.[]!-&~|^$\\é\n", max_size=8))
def test_a_glob_matches_what_fnmatch_does(pattern: str, text: str) -> None:
    assert bool(compile_glob(pattern).fullmatch(text)) == fnmatchcase(text, pattern)
