"""What is known of the peers of a name: what they have said, and what they owe."""

from __future__ import annotations

import pytest

from busd.testing import MemoryBus
from tests.wire_peers import PING, PONG, encode_frame


@pytest.mark.parametrize("opcode", [PING, PONG])
def test_pings_and_pongs_are_no_words_of_a_peer(opcode: int) -> None:
    bus = MemoryBus()
    peer = bus.join("agent:a", web_socket=True)
    before = bus.core.presence.heard(["agent:a"])
    for _ in range(3):
        peer.feed(encode_frame(opcode, b"still here"))
    assert bus.core.presence.heard(["agent:a"]) == before
    peer.send("nobody", {})
    assert bus.core.presence.heard(["agent:a"]) != before


def test_a_peer_owes_the_acks_of_what_it_was_handed() -> None:
    bus = MemoryBus()
    peer, sender = bus.join("agent:a"), bus.join("tg:1")
    sender.send("agent:a", {})
    said, owed = bus.core.presence.heard(["agent:a", "agent:nobody"])["agent:a"]
    assert owed == 1
    peer.next_message().ack()
    assert bus.core.presence.heard(["agent:a"]) == {"agent:a": (said + 1, 0)}
