"""The loop breaker on the bus: who is refused, what they are told, and who notices nothing."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from busd.bus.loops import LoopLimits
from busd.errors import CallRefused
from busd.testing import MemoryBus, ScriptedPeer
from busd.testing.answers import Answer, ReceiptSeen

HOPS = LoopLimits(max_hops=3)
BUDGET = LoopLimits(max_cycle_messages=200)


def refusal(answer: Answer[ReceiptSeen]) -> dict[str, Any]:
    """Return the data of a refusal."""
    with pytest.raises(CallRefused) as refused:
        answer.check()
    assert refused.value.code == -32602
    data: Any = refused.value.data
    return dict(data)


def exchange(
    peers: list[ScriptedPeer], count: int, *, cause: str | None = None, names_causes: bool = True
) -> list[Answer[ReceiptSeen]]:
    """Let peers answer each other in turn; each may name the message that it got."""
    answers: list[Answer[ReceiptSeen]] = []
    for number in range(count):
        sender, to = peers[number % len(peers)], peers[(number + 1) % len(peers)]
        answers.append(sender.send(to.name, {}, message_id=f"m{number}", caused_by=cause))
        cause = f"m{number}" if names_causes else None
        while to.inbox:
            to.next_message().ack()
    return answers


# Hops


def test_agents_that_answer_each_other_are_stopped_and_told_the_path() -> None:
    bus = MemoryBus(loops=HOPS)
    a, b = bus.join("agent:a"), bus.join("agent:b")
    *fine, last = exchange([a, b], 5)
    assert all(each.result.acks[0].success for each in fine)
    assert refusal(last) == {
        "rule": "loop.hops",
        "hops": 4,
        "limit": 3,
        "path": ["agent:b", "agent:a", "agent:b", "agent:a", "agent:b"],
    }


def test_a_refused_message_leaves_no_trace_and_its_sender_may_go_on() -> None:
    bus = MemoryBus(loops=HOPS)
    a, b = bus.join("agent:a"), bus.join("agent:b")
    exchange([a, b], 4)
    before = bus.core.last_call_id
    refusal(a.send("agent:b", {}, message_id="m4", caused_by="m3"))
    assert (bus.core.last_call_id, bus.core.unanswered, list(b.inbox)) == (before, 0, [])
    assert bus.core.loops.refused == {"loop.hops": 1}
    assert bus.core.tally.refused == {"loop.hops": 1}
    a.send("agent:b", {})
    assert b.next_message().payload == {}


def test_addressees_are_not_told_the_cause() -> None:
    bus = MemoryBus()
    a, b = bus.join("agent:a"), bus.join("agent:b")
    for cause in ("m1", "", None):
        a.send("agent:b", {"type": "x"}, caused_by=cause)
    assert len(b.inbox) == 3
    assert not any(b"causedBy" in frame for frame in b.frames[1:])


def test_the_bus_announces_that_it_takes_causes() -> None:
    welcome = MemoryBus().connect("agent:a").initialize().result
    assert welcome["capabilities"]["extensions"]["causedBy"] is True


def test_a_chain_through_a_topic_goes_on_with_whoever_answers() -> None:
    bus = MemoryBus(loops=HOPS)
    peers = [bus.join(f"agent:{number}", subscribe=["room:1"]) for number in range(5)]
    answers, cause = [], None
    for number, peer in enumerate(peers):
        answers.append(peer.send("room:1", {}, message_id=f"m{number}", caused_by=cause))
        cause = f"m{number}"
    assert refusal(answers[4])["path"][-1] == "room:1"


def test_an_unknown_cause_begins_a_chain() -> None:
    bus = MemoryBus(loops=HOPS)
    a, b = bus.join("agent:a"), bus.join("agent:b")
    for _ in range(10):
        sent = a.send("agent:b", {}, caused_by="never seen")
        b.next_message().ack()
        sent.check()


def test_the_empty_cause_begins_a_chain() -> None:
    bus = MemoryBus(loops=HOPS)
    a, b = bus.join("agent:a"), bus.join("agent:b")
    *fine, last = exchange([a, b], 5, cause="")
    assert not any(each.error for each in fine)
    assert refusal(last)["hops"] == 4


def test_a_cause_counts_only_for_those_who_got_it() -> None:
    bus = MemoryBus(loops=HOPS)
    a, b, c = (bus.join(f"agent:{name}") for name in "abc")
    exchange([a, b], 4)  # m3 went from b to a, and has 3 hops
    refusal(a.send("agent:c", {}, caused_by="m3"))
    c.send("agent:b", {}, caused_by="m3", sender="agent:a")
    assert b.next_message().sender == "agent:a"  # who it speaks as does not matter


def test_a_number_names_the_same_cause_as_its_digits() -> None:
    bus = MemoryBus(loops=LoopLimits(max_hops=1))
    a, b = bus.join("agent:a"), bus.join("agent:b")
    a.call("sendMessage", {"to": "agent:b", "messageId": 7, "causedBy": 6, "payload": {}})
    assert refusal(b.send("agent:a", {}, caused_by="7"))["hops"] == 2


@pytest.mark.parametrize("cause", ["x" * 257, 2**63, 1.5, [], {}])
def test_a_cause_that_cannot_be_an_id_is_refused(cause: object) -> None:
    bus = MemoryBus()
    a = bus.join("agent:a")
    sent = a.call("sendMessage", {"to": "agent:a", "causedBy": cause, "payload": {}})
    with pytest.raises(CallRefused, match="causedBy"):
        sent.check()


def test_no_cause_at_all_may_be_null() -> None:
    bus = MemoryBus()
    a = bus.join("agent:a")
    a.call("sendMessage", {"to": "agent:a", "causedBy": None, "payload": {}})
    a.next_message().ack()


def test_a_message_that_nobody_gets_is_nobodys_cause() -> None:
    bus = MemoryBus(loops=LoopLimits(max_hops=1))
    a = bus.join("agent:a")
    assert a.send("agent:late", {}, message_id="m1", caused_by="m0").result.undelivered
    late = bus.join("agent:late")
    late.send("agent:a", {}, caused_by="m1")
    a.next_message().ack()


def test_without_a_limit_no_chain_is_too_long() -> None:
    bus = MemoryBus(loops=LoopLimits(max_hops=0))
    for each in exchange([bus.join("agent:a"), bus.join("agent:b")], 300):
        each.check()


# The budget


def test_peers_without_causes_are_stopped_when_their_budget_is_used_up() -> None:
    bus = MemoryBus(loops=BUDGET)
    a, b = bus.join("agent:a"), bus.join("agent:b")
    answers = exchange([a, b], 2_000, names_causes=False)
    first = next(each for each in answers if each.error)
    data = refusal(first)
    path = data.pop("path")
    assert (len(path), path[0], set(path)) == (3, path[2], {"agent:a", "agent:b"})
    assert data == {"rule": "loop.budget", "limit": 200, "retrySeconds": 10.0}
    refusal(a.send("agent:b", {}))
    refusal(b.send("agent:a", {}))


def test_the_budget_drops_nothing_silently() -> None:
    """Each message is delivered, or its sender is told why not."""
    bus = MemoryBus(loops=BUDGET)
    peers = [bus.join(f"agent:{name}") for name in "abcde"]
    answers = exchange(peers, 8_000, names_causes=False)
    refused = [each for each in answers if each.error]
    assert 0 < len(refused) < len(answers)
    assert {refusal(each)["rule"] for each in refused} == {"loop.budget"}
    assert all(each.error or each.result.acks[0].success for each in answers)


def test_a_cycle_of_five_is_stopped_and_its_path_told() -> None:
    bus = MemoryBus(loops=LoopLimits(max_hops=12))
    peers = [bus.join(f"agent:{name}") for name in "abcde"]
    answers = exchange(peers, 15)
    first = next(number for number, each in enumerate(answers) if each.error)
    data = refusal(answers[first])
    assert (data["rule"], data["hops"], data["limit"]) == ("loop.hops", 13, 12)
    names = [peer.name for peer in peers]
    assert data["path"][-6:] == [names[(first + 1 - each) % 5] for each in (5, 4, 3, 2, 1, 0)]


def test_a_blocked_cycle_stops_nobody_else() -> None:
    bus = MemoryBus(loops=BUDGET)
    a, b, c = (bus.join(f"agent:{name}") for name in "abc")
    exchange([a, b], 2_000, names_causes=False)
    refusal(a.send("agent:b", {}))
    for sender, to in ((a, c), (c, a), (c, b), (b, c)):
        sender.send(to.name, {})
        to.next_message().ack()
    c.send("agent:b", {}, sender="agent:a")  # it may say so here, and is another peer
    b.next_message().ack()


def test_a_loop_is_found_where_only_one_names_causes() -> None:
    bus = MemoryBus(loops=BUDGET)
    a, b = bus.join("agent:a"), bus.join("agent:b")
    for number in range(2_000):
        plain = a.send("agent:b", {}, message_id=f"a{number}")
        named = b.send("agent:a", {}, caused_by=f"a{number}")
        a.inbox.clear()
        b.inbox.clear()
        if plain.error and named.error:
            break
    assert refusal(plain)["rule"] == refusal(named)["rule"] == "loop.budget"


def test_invented_causes_are_no_way_around_the_budget() -> None:
    bus = MemoryBus(loops=BUDGET)
    peers = bus.join("agent:a"), bus.join("agent:b")
    for number in range(3_000):
        sent = peers[number % 2].send(peers[1 - number % 2].name, {}, caused_by=f"x{number}")
        peers[1 - number % 2].inbox.clear()
    assert refusal(sent)["rule"] == "loop.budget"


def test_a_flood_of_answers_is_stopped_before_its_chains_are_long() -> None:
    bus = MemoryBus(loops=LoopLimits(max_cycle_messages=500))
    peers = {name: bus.join(name) for name in ("agent:a", "agent:b")}
    peers["agent:a"].send("agent:b", {}, message_id="m")
    waiting, sent = deque([("agent:b", "m")]), 1
    while waiting:
        name, cause = waiting.popleft()
        to = "agent:a" if name == "agent:b" else "agent:b"
        for number in (1, 2):  # every message is answered twice
            answer = peers[name].send(to, {}, message_id=f"{cause}{number}", caused_by=cause)
            peers[to].inbox.clear()
            if answer.error is None:
                waiting.append((to, f"{cause}{number}"))
                sent += 1
    assert 1_000 < sent < 10_000
    assert set(bus.core.loops.refused) == {"loop.budget"}


@pytest.mark.parametrize("max_hops", [64, 0])
def test_requests_that_nothing_caused_are_never_blocked(max_hops: int) -> None:
    bus = MemoryBus(loops=LoopLimits(max_hops=max_hops, max_cycle_messages=200))
    a, b = bus.join("agent:a"), bus.join("agent:b")
    for number in range(5_000):
        a.send("agent:b", {}, message_id=f"a{number}", caused_by="")
        b.send("agent:a", {}, caused_by=f"a{number}" if max_hops else None)
        a.inbox.clear()
        b.inbox.clear()
    assert not bus.core.loops.refused


def test_messages_that_nothing_caused_do_not_make_others_count_more() -> None:
    bus = MemoryBus(loops=LoopLimits(max_cycle_messages=1_000))
    a, b, c = (bus.join(f"agent:{name}") for name in "abc")
    for number in range(9_000):
        c.send("agent:c", {}, caused_by="")
        if number % 10 == 0:
            a.send("agent:b", {})
            b.send("agent:a", {})
        for peer in (a, b, c):
            peer.inbox.clear()
    assert not bus.core.loops.refused  # 900 in each direction, with 9,000 of the others


def test_a_blocked_cycle_may_go_on_after_its_pause() -> None:
    bus = MemoryBus(loops=BUDGET)
    a, b = bus.join("agent:a"), bus.join("agent:b")
    exchange([a, b], 2_000, names_causes=False)
    bus.advance(10)
    assert not [each for each in exchange([a, b], 100, names_causes=False) if each.error]


def test_whoever_watches_is_told_of_a_loop_once_a_minute() -> None:
    bus, seen = MemoryBus(loops=BUDGET), []
    bus.core.loops.watchers.append(lambda path, rule: seen.append((set(path), rule)))
    a, b = bus.join("agent:a"), bus.join("agent:b")
    for _ in range(8):
        exchange([a, b], 2_000, names_causes=False)
        bus.advance(10)
    assert seen[:1] == [({"agent:a", "agent:b"}, "loop.budget")]
    assert 1 < len(seen) <= 2
    assert bus.core.loops.found == {"loop.budget": len(seen)}


def test_new_limits_hold_at_once_and_forget_what_was_blocked() -> None:
    bus = MemoryBus(loops=BUDGET)
    a, b = bus.join("agent:a"), bus.join("agent:b")
    exchange([a, b], 2_000, names_causes=False)
    refusal(a.send("agent:b", {}))
    bus.core.loops.change(LoopLimits(max_cycle_messages=0))
    assert not [each for each in exchange([a, b], 5_000, names_causes=False) if each.error]
    bus.core.loops.change(BUDGET)
    exchange([a, b], 2_000, names_causes=False)
    refusal(a.send("agent:b", {}))


def test_what_a_peer_sends_to_itself_is_a_cycle() -> None:
    bus = MemoryBus(loops=BUDGET)
    a = bus.join("agent:a", subscribe=["tg:*"])
    for to, sender in (("agent:a", "agent:a"), ("tg:1", "tg:1"), ("agent:a", "client-17")):
        for _ in range(2_000):
            sent = a.send(to, {}, sender=sender)
            a.inbox.clear()
        assert refusal(sent)["path"] == [to, to]


def test_what_comes_back_through_a_topic_is_no_cycle() -> None:
    bus = MemoryBus(loops=BUDGET)
    a = bus.join("agent:a", subscribe=["events:*", "events:a"])
    bus.join("agent:b", subscribe=["*"])
    for to in ("events:a", "events:b"):
        for _ in range(3_000):
            a.notify(to, {})
            a.inbox.clear()
    assert not bus.core.loops.refused


def test_a_loop_is_found_through_topics_observers_and_invented_senders() -> None:
    bus = MemoryBus(loops=BUDGET)
    a, b = bus.join("agent:a", subscribe=["to-a:*"]), bus.join("agent:b", subscribe=["to-b:1"])
    watcher = bus.join("agent:watcher", subscribe=["*"])
    for _ in range(2_000):
        there = a.send("to-b:1", {}, sender="client-17")
        back = b.send("to-a:1", {})
        for peer in (a, b, watcher):
            peer.inbox.clear()
        if there.error and back.error:
            break
    path = refusal(there)["path"]
    assert {"agent:a", "to-b:1", "agent:b", "to-a:1"} == set(path)
