"""Peers: who may speak as whom, and what a peer that does not read costs."""

from __future__ import annotations

import pytest

from busd.bus import peer as module
from busd.errors import CallRefused
from busd.testing import MemoryBus
from busd.wire.connection import WireLimits


def test_an_open_bus_lets_routers_speak_for_others() -> None:
    bus = MemoryBus()
    router, worker = bus.join("router"), bus.join("b")
    router.notify("b", {}, sender="tg:1")
    assert worker.next_message().sender == "tg:1"


def test_a_strict_bus_lets_a_peer_speak_only_as_itself() -> None:
    bus = MemoryBus(policy="strict")
    router, worker = bus.join("router"), bus.join("b")
    refused = router.send("b", {}, sender="tg:1")
    with pytest.raises(CallRefused, match="router may not speak as tg:1") as problem:
        refused.check()
    assert problem.value.code == -32602
    assert problem.value.data == {"rule": "grant.everybody.speak_as", "sender": "tg:1"}
    router.notify("b", {"n": 1}, sender="router")
    router.notify("b", {"n": 2})
    assert [(call.sender, call.payload["n"]) for call in worker.inbox] == [
        ("router", 1),
        ("router", 2),
    ]


def test_senders_that_were_checked_are_remembered_within_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MAX_SENDERS_REMEMBERED", 5)
    bus = MemoryBus()
    router = bus.join("router")
    (remote,) = bus.core.remote_peers
    for number in range(50):
        router.notify("nobody", {}, sender=f"tg:{number}")
        assert len(remote.speaks_as) <= 6
    assert "router" in remote.speaks_as


def test_a_malformed_sender_is_refused_every_time() -> None:
    bus = MemoryBus()
    router = bus.join("router")
    for _ in range(2):
        refused = router.send("router", {}, sender="tg *")
        assert refused.error is not None
        assert refused.error.code == -32602


def test_a_peer_that_does_not_read_is_busy_until_it_reads_on() -> None:
    bus = MemoryBus(wire=WireLimits(max_queue_bytes=1_000))
    sender, sleeper = bus.join("a"), bus.join("b")
    sleeper.stop_reading()
    sent = [sender.send("b", {"x": "y" * 300}) for _ in range(5)]
    assert [answer.is_done for answer in sent] == [False, False, False, True, True]
    assert sent[3].result.acks[0].message == "peer is busy"
    assert not sleeper.transport.is_read_by_bus
    sleeper.read_on()
    assert len(sleeper.inbox) == 3
    assert sleeper.transport.is_read_by_bus
    assert not sender.send("b", {}).is_done


def test_what_a_clogged_peer_says_waits_until_it_reads_on() -> None:
    bus = MemoryBus(wire=WireLimits(max_queue_bytes=1_000))
    sender, sleeper = bus.join("a"), bus.join("b")
    sleeper.stop_reading()
    owed = [sender.send("b", {"x": "y" * 500}) for _ in range(2)]
    pong = sleeper.call("ping", {})
    assert not bus.core.is_idle
    sleeper.read_on()
    assert pong.is_done
    for _ in owed:
        sleeper.next_message().ack()
    assert all(answer.result.acks[0].success for answer in owed)


def test_a_peer_that_never_reads_is_closed_before_it_costs_too_much() -> None:
    bus = MemoryBus(wire=WireLimits(max_queue_bytes=1_000, max_unread_bytes=3_000))
    sleeper, workers = bus.join("a"), [bus.join(f"w:{n}", subscribe=["all"]) for n in range(5)]
    for _ in range(2):
        sleeper.send("all", {})
    sleeper.stop_reading()
    for worker in workers:
        worker.next_message().ack({"x": "y" * 500})
    assert sleeper.is_connected
    for worker in workers:
        worker.next_message().ack({"x": "y" * 500})
    assert not sleeper.is_connected
    assert len(bus.core.peers) == 5
    assert workers[0].send("a", {}).result.undelivered == "no route"


def test_unanswered_notifications_count_like_any_message() -> None:
    bus = MemoryBus()
    sender = bus.join("a")
    bus.join("b")
    for _ in range(bus.core.limits.max_unanswered):
        sender.notify("b", {})
    assert sender.send("b", {}).result.acks[0].message == "peer is busy"
    bus.advance(60)
    assert bus.core.is_idle


def test_many_requests_in_one_chunk_cost_no_more_than_a_peer_may_leave_unread() -> None:
    wire = WireLimits(max_queue_bytes=20_000, max_unread_bytes=100_000)
    bus = MemoryBus(wire=wire)
    for number in range(50):
        bus.join(f"agent:{number}")
    asker = bus.join("a")
    asker.stop_reading()
    before = asker.transport.written_bytes
    asker.feed(b'{"jsonrpc":"2.0","id":1,"method":"getStatus"}\n' * 200)
    assert asker.transport.written_bytes - before < wire.max_unread_bytes
    asker.frames.clear()
    asker.read_on()
    assert len(asker.frames) == 200  # what waited for it is answered as it reads
    assert asker.call("getStatus", {}).result["serverId"] == bus.core.server_id


def test_the_answers_to_one_batch_cost_no_more_than_a_peer_may_leave_unread() -> None:
    wire = WireLimits(max_queue_bytes=20_000, max_unread_bytes=100_000)
    bus = MemoryBus(wire=wire)
    for number in range(50):
        bus.join(f"agent:{number}")
    asker = bus.join("a")
    answers = asker.batch(*[("getStatus", {})] * 100)
    assert len(asker.frames[-1]) < wire.max_unread_bytes + 100 * 150
    assert answers[0].error is None
    assert answers[-1].error is not None
    assert answers[-1].error.code == -32004
