"""Quotas: what one identity may use with all its connections, and who is told what."""

from __future__ import annotations

from typing import Any

import pytest

from busd.bus.delivery import DeliveryLimits
from busd.bus.quota import Account, Allowance, QuotaLimits
from busd.errors import CallRefused, QuotaExceeded
from busd.testing import MemoryBus, ScriptedPeer
from busd.wire.connection import WireLimits
from busd.wire.credentials import Credentials

ALICE, BOB, NOBODY = Credentials(uid=1, by="unix"), Credentials(uid=2, by="unix"), Credentials()


def join(bus: MemoryBus, name: str, credentials: Credentials) -> ScriptedPeer:
    peer = bus.connect(name, credentials=credentials)
    peer.initialize().check()
    return peer


def refusal(peer: ScriptedPeer, method: str, params: dict[str, Any]) -> tuple[str, int]:
    with pytest.raises(CallRefused) as refused:
        peer.call(method, params).check()
    assert refused.value.code == -32004
    data: Any = refused.value.data
    return data["rule"], data["limit"]


def send_to(peer: ScriptedPeer, to: str) -> tuple[str, int]:
    return refusal(peer, "sendMessage", {"to": to, "payload": {}})


def used(bus: MemoryBus) -> dict[str, list[int]]:
    accounts = bus.core.accounts
    return {
        account.name: [
            account.connections,
            account.subscriptions,
            account.globs,
            account.info_bytes,
            account.unread_bytes,
            account.unanswered,
        ]
        for account in (accounts.unknown, *accounts.by_name.values())
        if not account.is_empty
    }


def test_an_identity_over_its_connections_is_told_so_and_others_may_still_come() -> None:
    bus = MemoryBus(quota=QuotaLimits(connections=2))
    first = join(bus, "a:1", ALICE)
    join(bus, "a:2", ALICE)
    with pytest.raises(QuotaExceeded) as refused:
        bus.connect("a:3", credentials=ALICE)
    assert refused.value.data["rule"] == "quota.connections"
    assert refused.value.data["limit"] == 2
    join(bus, "b:1", BOB)
    first.leave()
    join(bus, "a:3", ALICE)


def test_unknown_connections_share_a_part_of_each_quota() -> None:
    bus = MemoryBus(quota=QuotaLimits(connections=8, subscriptions=16, unknown_share=0.25))
    first = join(bus, "x:1", NOBODY)
    bus.connect("x:2", credentials=NOBODY)
    with pytest.raises(QuotaExceeded) as refused:
        bus.connect("x:3", credentials=NOBODY)
    assert refused.value.data["limit"] == 2
    for number in range(3):
        first.subscribe(f"topic:{number}")
    assert refusal(first, "subscribe", {"address": "topic:more"}) == ("quota.subscriptions", 4)
    join(bus, "a:1", ALICE).subscribe("topic:more")


def test_an_identity_over_its_subscriptions_is_told_which_quota_and_how_much() -> None:
    bus = MemoryBus(quota=QuotaLimits(subscriptions=4, globs=1))
    first, second = join(bus, "a:1", ALICE), join(bus, "a:2", ALICE)
    first.subscribe("?:x")
    assert refusal(second, "subscribe", {"address": "?:y"}) == ("quota.globs", 1)
    second.subscribe("y:*")
    assert refusal(second, "subscribe", {"address": "z"}) == ("quota.subscriptions", 4)
    third = bus.connect("a:3", credentials=ALICE)
    assert refusal(third, "initialize", {"clientId": "a:3"}) == ("quota.subscriptions", 4)
    first.unsubscribe("?:x")
    second.subscribe("?:y")


def test_one_peer_has_its_own_limit_of_globs() -> None:
    bus = MemoryBus(DeliveryLimits(max_globs=2))
    peer = join(bus, "a:1", ALICE)
    for pattern in ("?:1", "?:2", "?:1", "many:*"):
        peer.subscribe(pattern)
    assert refusal(peer, "subscribe", {"address": "?:3"}) == ("max_globs", 2)


def test_a_sender_pays_for_what_waits_for_acks_whoever_does_not_answer() -> None:
    bus = MemoryBus(quota=QuotaLimits(unanswered=3))
    sender, other = join(bus, "a:1", ALICE), join(bus, "b:1", BOB)
    sink = join(bus, "sink", BOB)
    join(bus, "sink", BOB)
    sent = sender.send("sink", {})  # to two
    assert send_to(sender, "sink") == ("quota.unanswered", 3)
    other.send("sink", {})
    assert send_to(join(bus, "a:2", ALICE), "sink") == ("quota.unanswered", 3)
    sink.next_message().ack()
    sender.notify("a:1", {})
    assert not sent.is_done
    assert used(bus)["uid 1"][-1] == 2
    bus.advance(61)
    assert sent.is_done
    assert used(bus)["uid 1"][-1] == used(bus)["uid 2"][-1] == 0


def test_unread_bytes_of_an_identity_make_those_that_do_not_read_busy() -> None:
    wire = WireLimits(max_queue_bytes=1_000_000)
    bus = MemoryBus(wire=wire, quota=QuotaLimits(unread_bytes=100_000))
    sender, first, second = join(bus, "b:1", BOB), join(bus, "a:1", ALICE), join(bus, "a:2", ALICE)
    first.stop_reading()
    second.stop_reading()
    for name in ("a:1", "a:2") * 4:
        sender.send(name, {"text": "x" * 20_000})
    assert 100_000 < used(bus)["uid 1"][4] < 140_000
    assert sender.send("a:1", {}).result.acks[0].message == "peer is busy"
    first.read_on()
    second.read_on()
    assert used(bus)["uid 1"][4] == 0
    first.next_message().ack()


def test_memory_over_the_quota_stops_whatever_would_take_more() -> None:
    quota = QuotaLimits(memory_bytes=100_000)
    bus = MemoryBus(quota=quota)
    peer = bus.connect("a:1", credentials=ALICE)
    peer.initialize(info={"name": "a", "version": "1", "about": "x" * 60_000}).check()
    join(bus, "sink", BOB)
    for _ in range(33):
        peer.send("sink", {})
    assert send_to(peer, "sink") == ("quota.memory", 100_000)
    sent = bus.connect("a:2", credentials=ALICE)
    assert sent.is_connected
    assert refusal(peer, "subscribe", {"address": "more"}) == ("quota.memory", 100_000)


@pytest.mark.parametrize("web_socket", [False, True])
def test_frames_that_never_end_are_counted_and_end_with_the_quota(*, web_socket: bool) -> None:
    bus = MemoryBus(quota=QuotaLimits(memory_bytes=150_000))
    peers = [bus.connect(f"a:{n}", credentials=ALICE, web_socket=web_socket) for n in range(3)]
    for peer in peers:
        peer.initialize().check()
        peer.send("nobody", {"text": "x"})
    account = bus.core.accounts.by_name["uid 1"]
    unfinished = b"\x81\xff" + (900_000).to_bytes(8, "big") + b"mask" if web_socket else b'{"a":"'
    peers[0].feed(unfinished)
    peers[0].feed(b"x" * 60_000)
    assert account.held_bytes >= 60_000
    peers[1].feed(unfinished)
    peers[1].feed(b"x" * 90_000)
    assert not peers[1].is_connected
    assert b"quota.memory" in b"".join(peers[1].frames)
    assert peers[0].is_connected
    peers[1].leave()
    assert 60_000 <= account.held_bytes < 61_000
    peers[0].leave()
    assert account.held_bytes == 0


def test_changed_limits_hold_for_those_who_are_here() -> None:
    bus = MemoryBus(quota=QuotaLimits(subscriptions=2))
    peer = join(bus, "a:1", ALICE)
    peer.subscribe("x")
    assert refusal(peer, "subscribe", {"address": "y"}) == ("quota.subscriptions", 2)
    bus.core.change(DeliveryLimits(), QuotaLimits(subscriptions=3))
    peer.subscribe("y")
    bus.core.change(DeliveryLimits(), QuotaLimits(subscriptions=1))
    assert refusal(peer, "subscribe", {"address": "z"}) == ("quota.subscriptions", 1)
    peer.unsubscribe("y")


def test_nothing_is_counted_when_everybody_is_gone() -> None:
    bus = MemoryBus()
    waiting = bus.connect("never", credentials=NOBODY)
    peers = [join(bus, f"a:{number}", ALICE) for number in range(3)]
    peers.append(join(bus, "x", NOBODY))
    for peer in peers:
        for pattern in ("?:x", "a:*", "plain"):
            peer.subscribe(pattern)
        peer.send("plain", {"text": "x" * 20_000})
    peers[0].stop_reading()
    peers[1].send("a:0", {"text": "x" * 20_000})
    assert len(used(bus)) == 2
    peers[0].half_close()
    for peer in (waiting, *peers):
        peer.leave()
    assert used(bus) == {}


def test_what_one_connection_does_not_use_another_of_its_identity_may() -> None:
    bus = MemoryBus(quota=QuotaLimits(unanswered=64))
    senders = [join(bus, f"a:{number}", ALICE) for number in range(8)]
    sink = join(bus, "sink", BOB)
    for sender in senders:  # each is granted more than it uses
        sender.send("sink", {})
        sink.next_message().ack()
    for _ in range(64):
        senders[0].send("sink", {})
    assert send_to(senders[0], "sink") == ("quota.unanswered", 64)
    assert send_to(senders[1], "sink") == ("quota.unanswered", 64)
    sink.next_message().ack()
    senders[1].send("sink", {})
    assert used(bus)["uid 1"][-1] == 64


def test_a_sender_that_left_is_forgotten_once_its_messages_are_answered() -> None:
    bus = MemoryBus(quota=QuotaLimits(unanswered=100))
    sink = join(bus, "sink", BOB)
    stays = join(bus, "a:stays", ALICE)
    for round_number in range(500):
        sender = join(bus, f"a:{round_number}", ALICE)
        sender.notify("sink", {})
        sender.leave()
        sink.next_message().ack()
    account = bus.core.accounts.by_name["uid 1"]
    assert account.unanswered == 0
    assert account.granted <= 2  # not yet looked at
    for _ in range(100):
        stays.send("sink", {})
    assert send_to(stays, "sink") == ("quota.unanswered", 100)


def test_the_cost_of_a_refusal_does_not_grow_with_the_senders_of_an_identity() -> None:
    bus = MemoryBus(DeliveryLimits(max_unanswered=4_000), quota=QuotaLimits(unanswered=2_000))
    join(bus, "sink", BOB)
    senders = [join(bus, f"a:{number}", ALICE) for number in range(2_000)]
    for sender in senders:
        sender.notify("sink", {})
    account = bus.core.accounts.by_name["uid 1"]
    assert account.unanswered == 2_000
    looked_at = 0
    shrink = Account._shrink

    def counting(self: Account, allowance: Allowance) -> int:
        nonlocal looked_at
        looked_at += 1
        return shrink(self, allowance)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Account, "_shrink", counting)
        for sender in senders[:500]:
            send_to(sender, "sink")
    assert looked_at <= 500 * 32 + 2_000
