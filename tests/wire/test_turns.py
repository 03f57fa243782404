"""Work that takes several turns: nothing of it is lost, whatever happens meanwhile."""

from __future__ import annotations

import json

import pytest

from busd.testing import MemoryBus
from tests.fairness.floods import request

MANY = 300


@pytest.fixture
def bus() -> MemoryBus:
    """A bus that ends a turn at every look at the clock."""
    bus = MemoryBus()
    bus.connections.turns.slice_seconds = bus.connections.turns.round_seconds = 0.0
    return bus


def pings(first: int = 0) -> bytes:
    return b"".join(request("ping", {}, id=first + n) + b"\n" for n in range(MANY))


def test_a_half_closed_peer_gets_all_its_answers_in_order_and_is_closed_then(
    bus: MemoryBus,
) -> None:
    peer = bus.join("agent:a")
    peer.frames.clear()
    peer.feed(pings())
    peer.half_close()
    assert [json.loads(frame)["id"] for frame in peer.frames] == list(range(MANY))
    assert peer.has_end


def test_what_a_peer_said_before_it_was_lost_is_delivered(bus: MemoryBus) -> None:
    sender, receiver = bus.join("agent:a"), bus.join("agent:b")
    message = request("sendMessage", {"to": "agent:b", "payload": {}}) + b"\n"

    def say_and_go() -> None:
        sender.feed((request("ping", {}) + b"\n") * MANY + message)
        sender.leave()

    bus._soon.run(say_and_go)
    assert len(receiver.inbox) == 1
    assert [peer.name for peer in bus.core.peers] == ["agent:b"]
    assert not bus.connections.turns.is_busy


def test_a_batch_is_answered_in_one_array_before_what_comes_behind_it(bus: MemoryBus) -> None:
    peer = bus.join("agent:a")
    peer.frames.clear()
    batch = b"[" + pings().replace(b"\n", b",").rstrip(b",") + b"]\n"
    peer.feed(batch + request("ping", {}, id=MANY) + b"\n")
    first, second = (json.loads(frame) for frame in peer.frames)
    assert [answer["id"] for answer in first] == list(range(MANY))
    assert second["id"] == MANY


def test_a_peer_with_nothing_left_to_be_worked_off_does_not_wait_for_a_turn(
    bus: MemoryBus,
) -> None:
    flooder, peer = bus.join("agent:a"), bus.join("agent:b")
    turns = bus.connections.turns
    seen: list[bool] = []

    def ask() -> None:
        turns.slice_seconds = turns.round_seconds = 60.0  # this round is not over
        seen.append(turns.is_busy)
        peer.feed(request("ping", {}, id="p") + b"\n")
        bus._soon.run(lambda: seen.append(peer.transport.is_read_by_bus))

    def start() -> None:
        flooder.feed(pings())
        bus._soon.run(ask)

    bus._soon.run(start)
    assert seen == [True, True]


def test_requests_of_many_connections_wait_once_a_round_is_over(bus: MemoryBus) -> None:
    peers = [bus.join(f"agent:{n}") for n in range(20)]
    answered: list[int] = []

    def count() -> None:
        answered.append(sum(bool(peer.frames) for peer in peers))
        if answered[-1] < len(peers):
            bus._soon.run(count)

    def ask() -> None:
        for peer in peers:
            peer.frames.clear()
            peer.feed(request("getStatus", {}, id=1) + b"\n")
        bus._soon.run(count)

    bus._soon.run(ask)
    assert answered[0] <= 3  # the first looks at the clock find out whether a round has begun
    assert answered == sorted(answered)
    assert answered[-1] == len(peers)
