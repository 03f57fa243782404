"""A message to many peers is written out a few per round of the loop."""

from __future__ import annotations

from collections.abc import Callable

from busd.testing import MemoryBus, ScriptedPeer
from busd.wire.flushing import AT_ONCE

MANY = 3 * AT_ONCE


def join_many(bus: MemoryBus) -> list[ScriptedPeer]:
    return [bus.join(f"agent:{n}", subscribe=["everybody"]) for n in range(MANY)]


def got(peers: list[ScriptedPeer]) -> int:
    """Return how many of them have been handed something."""
    return sum(bool(peer.inbox) for peer in peers)


def run_in_rounds(bus: MemoryBus, *actions: Callable[[], object]) -> None:
    """Run each in a round of the loop of its own, with what else is due in between."""

    def run(number: int) -> None:
        actions[number]()
        if number + 1 < len(actions):
            bus._soon.run(lambda: run(number + 1))

    bus._soon.run(lambda: run(0))


def test_others_are_served_while_a_message_to_many_is_written_out() -> None:
    bus = MemoryBus()
    peers, (alice, bob) = join_many(bus), (bus.join("a"), bus.join("b"))
    sender = bus.join("sender")
    seen: list[tuple[int, int]] = []

    def exchange() -> None:
        seen.append((got(peers), len(bob.inbox)))
        alice.notify("b", {})

    run_in_rounds(bus, lambda: sender.notify("everybody", {}), *[exchange] * 4)
    assert got(peers) == MANY
    assert [count for _, count in seen] == [0, 1, 2, 3]
    assert 0 < seen[1][0] < seen[2][0] < seen[3][0] < MANY


def test_what_else_is_sent_to_a_peer_that_waits_arrives_at_once_and_in_order() -> None:
    bus = MemoryBus()
    peers, alice, sender = join_many(bus), bus.join("a"), bus.join("sender")
    waiting = peers[-1]
    early: list[int] = []
    run_in_rounds(
        bus,
        lambda: sender.notify("everybody", {"text": "first"}),
        lambda: alice.notify(waiting.name, {"text": "second"}),
        lambda: None,
        lambda: early.extend((len(waiting.inbox), got(peers))),
    )
    assert early[0] == 2
    assert early[1] < MANY
    assert [message.payload["text"] for message in waiting.inbox] == ["first", "second"]
    assert [len(peer.inbox) for peer in peers] == [1] * (MANY - 1) + [2]


def test_who_sends_to_many_is_not_read_until_all_is_written_out() -> None:
    bus = MemoryBus()
    peers, sender = join_many(bus), bus.join("sender")
    most: list[int] = []

    def send() -> None:
        for number in range(5):
            sender.notify("everybody", {"number": number})

    def look() -> None:
        most.append(max(len(peer.inbox) for peer in peers))

    run_in_rounds(bus, send, *[look] * 8)
    assert most[-1] == 1
    for peer in peers:
        assert [message.payload["number"] for message in peer.inbox] == list(range(5))
    assert sender.call("ping", {}).is_done


def test_a_message_to_many_arrives_though_its_sender_has_gone() -> None:
    bus = MemoryBus()
    peers, sender = join_many(bus), bus.join("sender")

    def send_and_go() -> None:
        sender.notify("everybody", {})
        sender.leave()

    bus._soon.run(send_and_go)
    assert got(peers) == MANY
    assert not bus.connections.turns.is_busy


def test_each_message_of_a_batch_to_many_is_written_out_before_the_next() -> None:
    bus = MemoryBus()
    peers, sender = join_many(bus), bus.join("sender")
    params = {"from": "sender", "to": "everybody", "payload": {}}
    answers = sender.batch(*[("sendMessage", params)] * 3)
    for peer in peers:
        assert len(peer.inbox) == 3
        while peer.inbox:
            peer.next_message().ack()
    assert [len(answer.result["acks"]) for answer in answers] == [MANY] * 3
