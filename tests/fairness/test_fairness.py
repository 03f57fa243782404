"""However much one peer sends at once, the others' messages are served in between.

Nothing here looks at the clock of a busy machine: the slices are made short, and what is counted
is how many turns a flood takes and how many messages of others are delivered meanwhile.
"""

from __future__ import annotations

import pytest

from busd.testing import MemoryBus, ScriptedPeer
from tests.fairness.floods import FLOODS, Flood

ENOUGH = 50  # messages; a flood of empty lines takes 250,000 turns here
CHUNK_BYTES = 256_000  # as much as uvloop reads at once
# They are worked off within a slice: the answers are not read, or the frames are few and long.
SHORT = ("getStatus, answers not read", "messages of a MiB to itself")


@pytest.fixture
def bus() -> MemoryBus:
    """A bus that ends a turn at every look at the clock."""
    bus = MemoryBus()
    bus.connections.turns.slice_seconds = bus.connections.turns.round_seconds = 0.0
    return bus


class Bystanders:
    """A pair that exchanges one message in every turn of the loop that a flood takes."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self._alice, self._bob = bus.join("bystander:a"), bus.join("bystander:b")
        self.sent = self.delivered = 0

    def exchange(self) -> None:
        """Send one, and come back in the next turn while somebody waits for one."""
        while self._bob.inbox:
            self._bob.inbox.popleft().ack()
            self.delivered += 1
        self.sent += 1
        self._alice.send("bystander:b", {"number": self.sent})
        if self._bus.connections.turns.is_busy and self.sent < ENOUGH:
            self._bus._soon.run(self.exchange)


def feed(bus: MemoryBus, peer: ScriptedPeer, data: bytes) -> Bystanders:
    """Feed one chunk of a flood with the bystanders right behind it."""
    pair = Bystanders(bus)

    def start() -> None:
        peer.feed(data[:CHUNK_BYTES])
        bus._soon.run(pair.exchange)

    bus._soon.run(start)
    return pair


def join(bus: MemoryBus, flood: Flood) -> ScriptedPeer:
    peer = bus.connect("flooder", web_socket=flood.transport == "ws")
    for data in peer.framer.encode([]):
        peer.feed(data)  # the handshake of a WebSocket
    if flood.initializes:
        peer.initialize().check()
    return peer


@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.name)
def test_the_others_are_served_while_a_flood_is_worked_off(bus: MemoryBus, flood: Flood) -> None:
    if flood.name in SHORT:
        pytest.skip("one chunk of it takes no longer than a slice")
    if flood.name == "arrays of half a million":
        pytest.skip("it is one frame; its cost has a test of its own")
    pair = feed(bus, join(bus, flood), flood.data)
    assert pair.sent > 3, "the flood was worked off in one go"
    assert pair.delivered >= pair.sent - 1
    assert not bus.connections.turns.is_busy
