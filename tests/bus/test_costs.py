"""What a thing costs does not depend on how many others there are, or on what they registered.

Each cost is compared with the same thing done on a small bus: the shortest of several tries, as a
ratio, so that it holds on a slow and busy machine, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from busd.bus.bus import Bus
from busd.bus.delivery import DeliveryLimits
from busd.bus.peer import RemotePeer
from busd.bus.routes import MAX_GLOBS, Routes
from busd.testing import MemoryBus, ScriptedPeer
from busd.wire.connection import WireLimits
from tests.properties.test_routes import Party

FEW, MANY = 20, 3_000
TRIES = 15
GENEROUS = 12  # where there are 150 times as many


def cost(action: Callable[[], object]) -> float:
    """Return the shortest time that an action took, in seconds."""
    times = []
    for _ in range(TRIES):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def crowded(count: int) -> tuple[MemoryBus, ScriptedPeer]:
    bus = MemoryBus()
    for number in range(count):
        bus.join(f"idle:{number}")
    return bus, bus.join("agent:one")


@pytest.fixture(scope="module")
def crowds() -> tuple[tuple[MemoryBus, ScriptedPeer], tuple[MemoryBus, ScriptedPeer]]:
    return crowded(FEW), crowded(MANY)


Crowds = tuple[tuple[MemoryBus, ScriptedPeer], tuple[MemoryBus, ScriptedPeer]]


def test_a_sweep_looks_at_no_idle_peer(crowds: Crowds) -> None:
    (small, _), (large, _) = crowds
    for bus in (small, large):
        bus.advance(2 * WireLimits().ping_seconds)  # all have initialized, and speak lines
    assert cost(large.sweep) < GENEROUS * cost(small.sweep)


def test_what_is_in_flight_is_found_without_looking_at_idle_peers(crowds: Crowds) -> None:
    (small, _), (large, _) = crowds

    def ask(bus: MemoryBus) -> Callable[[], object]:
        return lambda: (
            list(bus.core.open_since(0)),
            bus.core.is_idle,
            bus.core.presence.heard(["a"]),
        )

    assert cost(ask(large)) < GENEROUS * cost(ask(small))


def test_a_page_of_get_status_costs_the_same_however_many_peers_there_are() -> None:
    (small, one), (large, other) = crowded(1_000), crowded(8_000)
    assert "moreConnections" in other.call("getStatus", {}).result

    def page(bus: MemoryBus, peer: ScriptedPeer) -> Callable[[], object]:
        after = list(bus.core.peers)[-20].connection_id
        return lambda: peer.call("getStatus", {"after": after}).check()

    assert cost(page(large, other)) < 3 * cost(page(small, one))


def test_get_status_of_peers_with_many_subscriptions_is_bounded() -> None:
    bus = MemoryBus()
    greedy = [bus.join(f"greedy:{number}") for number in range(40)]
    for peer in greedy:
        for number in range(2_000):
            bus.core.subscribe(_member(bus, peer), f"topic:{number}")
    page = greedy[0].call("getStatus", {}).result
    shown = sum(len(each["subscriptions"]) for each in page["connections"])
    assert shown <= 10_000
    assert page["moreConnections"] == 30
    following = greedy[0].call("getStatus", {"after": page["connections"][-1]["connectionId"]})
    assert following.result["connections"][0]["clientId"] == "greedy:10"


def test_what_a_half_closed_sender_is_owed_is_known_without_looking_at_others(
    crowds: Crowds,
) -> None:
    (small, one), (large, other) = crowds

    def ask(bus: MemoryBus, peer: ScriptedPeer) -> Callable[[], object]:
        member = _member(bus, peer)
        return lambda: [bus.core.owes_answer(member) for _ in range(20)]

    assert cost(ask(large, other)) < GENEROUS * cost(ask(small, one))


def test_a_glob_is_removed_without_looking_at_the_others() -> None:
    party = Party("alice")

    def removing(count: int) -> float:
        routes = Routes()
        for number in range(count):
            routes.add(f"?:{number}", party)

        def change() -> None:
            routes.remove("?:0", party)
            routes.add("?:0", party)

        return cost(change)

    assert removing(MAX_GLOBS) < 4 * removing(4)


def test_patterns_that_come_and_go_leave_what_others_look_up_remembered() -> None:
    routes = Routes()
    alice, flooder = Party("alice"), Party("flooder")
    routes.add("agent:alice", alice)
    for number in range(MAX_GLOBS - 1):
        routes.add(f"?lood:{number}", flooder)
    assert routes.match("agent:alice") == (alice,)
    for pattern in ("?lood:x", "flood:*", "flood:exact"):
        routes.add(pattern, flooder)
        assert "agent:alice" in routes.remembered
        routes.remove(pattern, flooder)
        assert "agent:alice" in routes.remembered
    routes.add("agent:a*e", flooder)
    assert routes.match("agent:alice") == (alice, flooder)
    routes.remove("agent:a*e", flooder)
    assert routes.match("agent:alice") == (alice,)


def _member(bus: MemoryBus, peer: ScriptedPeer) -> RemotePeer:
    (found,) = bus.core.present(peer.name)
    return found


# Leaving


class Paused:
    """A bus whose put off work is done when the test says so."""

    def __init__(self) -> None:
        self.bus = MemoryBus(DeliveryLimits(max_unanswered=5_000))
        self.core: Bus = self.bus.core
        self.go_on = self.core.wake
        self.core.wake = lambda: None


def test_a_peer_that_left_gets_nothing_from_that_moment_on() -> None:
    paused = Paused()
    alice, bob = paused.bus.join("agent:alice"), paused.bus.join("agent:bob")
    for pattern in ("topic:*", "?opic:x"):
        bob.subscribe(pattern)
    for address in ("agent:bob", "topic:x"):
        alice.send(address, {})
    bob.leave()
    assert not paused.core.present("agent:bob")
    assert len(paused.core.peers) == 1
    for address in ("agent:bob", "topic:x", "topic:new"):
        assert alice.send(address, {}).result.undelivered == "no route"


def test_a_peer_with_many_patterns_and_messages_leaves_in_slices_and_in_order() -> None:
    paused = Paused()
    alice, bob = paused.bus.join("agent:alice"), paused.bus.join("agent:bob")
    leaver = _member(paused.bus, bob)
    for number in range(3_000):
        paused.core.subscribe(leaver, f"topic:{number}")
    sent = [alice.send("agent:bob", {"n": number}) for number in range(1_000)]
    bob.leave()
    slices = 1
    while paused.core.work():
        slices += 1
        done = [each.is_done for each in sent]
        assert done == sorted(done, reverse=True)
    assert slices > 15
    paused.bus.connections.flush()
    assert all("left" in each.result.acks[0].message for each in sent)
    assert not paused.core.routes.leaving


def test_leaving_costs_the_same_whatever_was_registered() -> None:
    def leaving(patterns: int) -> float:
        paused = Paused()
        peers = [paused.bus.join(f"agent:{number}") for number in range(TRIES)]
        for peer in peers:
            for number in range(patterns):
                paused.core.subscribe(_member(paused.bus, peer), f"topic:{number}")
        members = list(paused.core.peers)
        return cost(lambda: paused.core.leave(members.pop(), "gone"))

    assert leaving(2_000) < 8 * leaving(1)


def test_watchers_hear_that_a_name_left_before_they_hear_that_it_is_back() -> None:
    heard = []

    class Watching:
        def on_peer_joined(self, name: str) -> None:
            heard.append(f"{name} joined")

        def on_peer_left(self, name: str) -> None:
            heard.append(f"{name} left")

    paused = Paused()
    paused.core.watchers.append(Watching())
    paused.bus.join("agent:bob").leave()
    paused.bus.join("agent:bob")
    paused.core.finish_work()
    assert heard == ["agent:bob joined", "agent:bob left", "agent:bob joined"]
