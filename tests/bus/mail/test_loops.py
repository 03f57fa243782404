"""The loop breaker and mail: chains go on through mailboxes, over hours and restarts."""

from __future__ import annotations

from typing import Any

import pytest

from busd.bus.hops import MAX_SECONDS
from busd.bus.loops import LoopLimits
from busd.bus.mail_policy import MailSettings
from busd.errors import CallRefused
from busd.testing import MemoryBus, ScriptedPeer
from busd.testing.answers import Answer, ReceiptSeen
from tests.bus.mail.disk_bus import DURABLE, DiskBus

HOPS = LoopLimits(max_hops=3)
BUDGET = LoopLimits(max_cycle_messages=200)
ENOUGH = 2_000


def keeping(loops: LoopLimits) -> MemoryBus:
    return MemoryBus(mail=MailSettings(), loops=loops)


def refusal(answer: Answer[ReceiptSeen]) -> dict[str, Any]:
    """Return the data of a refusal."""
    with pytest.raises(CallRefused) as refused:
        answer.check()
    assert refused.value.code == -32602
    data: Any = refused.value.data
    return dict(data)


def sent_until_refused(bus: MemoryBus, *, durable: bool, attempts: int = 1) -> int:
    """Have two peers answer each other, without causes; return how many messages pass."""
    peers = [bus.join("agent:a"), bus.join("agent:b")]
    for number in range(ENOUGH):
        sender, to = peers[number % 2], peers[1 - number % 2]
        sent = sender.send(to.name, {}, delivery=DURABLE if durable else None)
        if sent.error:
            assert refusal(sent)["rule"] == "loop.budget"
            return number
        for _ in range(attempts - 1):
            to.next_message().fail("later", retry_seconds=0.25)
            bus.advance(0.25)
        to.next_message().ack()
    raise AssertionError("never refused")


# Hops


def test_agents_that_answer_each_other_durably_are_stopped_and_told_the_path() -> None:
    bus = keeping(HOPS)
    peers = [bus.join("agent:a"), bus.join("agent:b")]
    cause, sent = "", []
    for number in range(5):
        sender, to = peers[number % 2], peers[1 - number % 2]
        sent.append(
            sender.send(to.name, {}, message_id=f"m{number}", caused_by=cause, delivery=DURABLE)
        )
        cause = f"m{number}"
        if to.inbox:
            to.next_message().ack()
    assert all(each.result.acks[0].success for each in sent[:4])
    assert refusal(sent[4]) == {
        "rule": "loop.hops",
        "hops": 4,
        "limit": 3,
        "path": ["agent:a", "agent:b", "agent:a", "agent:b", "agent:a", "agent:b"],
    }


def test_a_refused_message_is_not_kept_and_not_counted() -> None:
    bus = keeping(LoopLimits(max_hops=1))
    a, b = bus.join("agent:a"), bus.join("agent:b")
    a.send("agent:b", {}, message_id="m1", caused_by="m0", delivery=DURABLE)
    b.next_message().ack()
    before = bus.core.tally.accepted(bus.core.last_call_id)
    assert refusal(b.send("agent:c", {}, caused_by="m1", delivery=DURABLE))["hops"] == 2
    assert (bus.store.totals.count, bus.mailboxes.boxes.get("agent:c")) == (0, None)
    assert bus.core.tally.accepted(bus.core.last_call_id) == before


def test_mail_is_a_cause_for_whoever_gets_it_under_whatever_name() -> None:
    bus = keeping(LoopLimits(max_hops=1))
    a = bus.join("agent:a")
    sent = a.send("app:7", {}, message_id="m1", caused_by="m0", delivery=DURABLE)
    assert sent.result.undelivered == "kept"
    w, other = bus.join("agent:w", subscribe=["app:*"]), bus.join("agent:other")
    w.next_message()
    assert not other.send("agent:a", {}, caused_by="m1").error  # it is not its cause
    assert refusal(w.send("agent:a", {}, caused_by="m1")) == {
        "rule": "loop.hops",
        "hops": 2,
        "limit": 1,
        "path": ["agent:a", "agent:w", "agent:a"],
    }


@pytest.mark.parametrize("is_crash", [False, True])
def test_a_chain_goes_on_after_hours_and_after_a_crash(*, is_crash: bool) -> None:
    run = DiskBus(loops=HOPS)
    a, b = run.join("agent:a"), run.join("agent:b")
    a.send("agent:b", {}, message_id="m1", caused_by="m0")
    b.send("agent:a", {}, message_id="m2", caused_by="m1")
    a.send("agent:late", {}, message_id="m3", caused_by="m2", delivery=DURABLE)
    run.settle()
    if is_crash:
        run.crash()
    else:
        run.clock.now += MAX_SECONDS
        run.wall_clock.now += MAX_SECONDS
    late = run.join("agent:late")
    assert late.next_message().message_id == "m3"
    assert refusal(late.send("agent:b", {}, caused_by="m3")) == {
        "rule": "loop.hops",
        "hops": 4,
        "limit": 3,
        "path": ["agent:a", "agent:late", "agent:b"],  # what led to it before is forgotten
    }


def test_mail_that_is_sent_again_is_the_same_part_of_its_chain() -> None:
    bus = keeping(LoopLimits(max_hops=2))
    a, b = bus.join("agent:a"), bus.join("agent:b")
    a.send("agent:b", {}, message_id="m1", caused_by="m0")
    for _ in range(5):
        b.send("agent:a", {}, message_id="m2", caused_by="m1", delivery=DURABLE)
    a.next_message().ack()
    assert refusal(a.send("agent:b", {}, caused_by="m2"))["hops"] == 3


def test_mail_without_a_cause_is_no_part_of_a_chain() -> None:
    bus = keeping(LoopLimits(max_hops=1))
    a, b = bus.join("agent:a"), bus.join("agent:b")
    a.send("agent:b", {}, message_id="m1", delivery=DURABLE)
    b.next_message().ack()
    assert not b.send("agent:a", {}, message_id="m2", caused_by="m1").error


def test_addressees_of_mail_are_told_neither_the_cause_nor_the_options() -> None:
    bus = keeping(HOPS)
    a, b = bus.join("agent:a"), bus.join("agent:b")
    options: list[dict[str, object] | None] = [DURABLE, {"ttlSeconds": 5}, None]
    for delivery in options:
        a.send("agent:b", {}, caused_by="m1", delivery=delivery)
    assert len(b.inbox) == 3
    for word in (b"causedBy", b"delivery"):
        assert not any(word in frame for frame in b.frames[1:])


# The budget


def test_agents_that_answer_each_other_durably_use_up_the_same_budget() -> None:
    plain = sent_until_refused(keeping(BUDGET), durable=False)
    assert sent_until_refused(keeping(BUDGET), durable=True) == plain


def test_messages_that_are_delivered_again_count_once() -> None:
    limits = LoopLimits(max_cycle_messages=200, cycle_seconds=100_000.0)
    once = sent_until_refused(keeping(limits), durable=True)
    assert sent_until_refused(keeping(limits), durable=True, attempts=3) == once


def test_mail_of_others_does_not_use_up_the_budget_of_two_peers() -> None:
    bus = keeping(BUDGET)
    plain = sent_until_refused(keeping(BUDGET), durable=False)
    c = bus.join("agent:c")
    peers: list[ScriptedPeer] = [bus.join("agent:a"), bus.join("agent:b")]
    for number in range(plain // 2):
        for _ in range(3):
            c.send("agent:absent", {}, delivery=DURABLE)
        peers[number % 2].send(peers[1 - number % 2].name, {})
        peers[1 - number % 2].next_message().ack()
    assert not bus.core.loops.refused


def test_agents_that_are_never_here_together_are_stopped() -> None:
    bus = keeping(BUDGET)
    names = ["agent:a", "agent:b"]
    for number in range(ENOUGH):
        sender = bus.join(names[number % 2])
        if sender.inbox:
            sender.next_message().ack()
        sent = sender.send(names[1 - number % 2], {}, delivery=DURABLE)
        sender.leave()
        if sent.error:
            break
    assert set(refusal(sent)["path"]) == set(names)


def test_every_message_is_counted_once_however_often_it_is_handed_over() -> None:
    bus = keeping(HOPS)
    a, b = bus.join("agent:a"), bus.join("agent:b")
    bus.join("monitor:1", subscribe=["*"])
    a.send("agent:b", {}, delivery=DURABLE)
    b.next_message().fail("later", retry_seconds=0.25)
    bus.join("agent:c").leave()
    a.send("agent:c", {})
    core = bus.core
    assert core.tally.accepted(core.last_call_id) == 2
    assert core.tally.handed_over(core.last_call_id) == 2
