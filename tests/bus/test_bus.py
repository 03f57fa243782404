"""The bus: joining, leaving, waiting, giving up; told with real peers and a fake clock."""

from __future__ import annotations

import pytest

from busd.bus.delivery import DeliveryLimits
from busd.errors import CallRefused
from busd.testing import Answer, MemoryBus, ReceiptSeen


def _messages(*answers: Answer[ReceiptSeen]) -> list[str]:
    return [answer.result.acks[0].message for answer in answers]


def test_each_delivery_is_given_up_when_its_own_time_is_up() -> None:
    bus = MemoryBus(DeliveryLimits(ack_seconds=10))
    sender = bus.join("a")
    bus.join("b")
    first = sender.send("b", {})
    bus.advance(4)
    second = sender.send("b", {})
    bus.advance(5.75)
    assert not first.is_done
    bus.advance(0.25)
    assert first.is_done
    assert not second.is_done
    bus.advance(4)
    assert _messages(first, second) == ["no answer in time"] * 2


def test_an_answer_that_comes_too_late_changes_nothing() -> None:
    bus = MemoryBus()
    sender, worker = bus.join("a"), bus.join("b")
    sent = sender.send("b", {})
    bus.advance(60)
    worker.next_message().ack()
    assert len(sent.replies) == 1
    assert _messages(sent) == ["no answer in time"]
    assert worker.is_connected


def test_a_slow_peer_does_not_hide_the_answers_of_the_others() -> None:
    bus = MemoryBus()
    sender, quick = bus.join("a"), bus.join("b", subscribe=["all"])
    bus.join("c", subscribe=["all"])
    sent = sender.send("all", {})
    quick.next_message().ack({"n": 1})
    bus.advance(60)
    assert [(ack.success, ack.payload) for ack in sent.result.acks] == [
        (True, {"n": 1}),
        (False, {}),
    ]


def test_a_peer_with_too_much_unanswered_is_busy_at_once() -> None:
    bus = MemoryBus(DeliveryLimits(max_unanswered=2))
    sender, worker = bus.join("a"), bus.join("b")
    sent = [sender.send("b", {"n": n}) for n in range(3)]
    assert [answer.is_done for answer in sent] == [False, False, True]
    busy = sent[2].result.acks[0]
    assert (busy.message, busy.should_retry, busy.retry_seconds) == ("peer is busy", True, 1)
    assert len(worker.inbox) == 2
    worker.next_message().ack()
    again = sender.send("b", {"n": 3})
    assert not again.is_done
    assert [call.payload["n"] for call in worker.inbox] == [1, 3]


def test_a_busy_peer_does_not_keep_a_message_from_the_others() -> None:
    bus = MemoryBus(DeliveryLimits(max_unanswered=1))
    sender, free = bus.join("a"), bus.join("b", subscribe=["all"])
    bus.join("c", subscribe=["all"])
    sender.notify("c", {})
    sent = sender.send("all", {})
    free.next_message().ack()
    assert {ack.client_id: ack.message for ack in sent.result.acks} == {
        "c": "peer is busy",
        "b": "",
    }


def test_a_lost_peer_fails_what_it_owes_at_once_and_is_forgotten() -> None:
    bus = MemoryBus()
    sender, worker = bus.join("a"), bus.join("b", subscribe=["x:*", "?"])
    sent = [sender.send("b", {}), sender.send("x:1", {})]
    worker.leave()
    assert _messages(*sent) == ["peer left before it answered"] * 2
    assert sender.send("x:1", {}).result.undelivered == "no route"
    assert [peer.name for peer in bus.core.peers] == ["a"]


def test_a_half_closed_sender_still_gets_its_answers_and_is_then_closed() -> None:
    bus = MemoryBus()
    sender, worker = bus.join("a"), bus.join("b")
    first, second = sender.send("b", {}), sender.send("b", {})
    sender.half_close()
    worker.next_message().ack()
    assert first.is_done
    assert sender.is_connected
    worker.next_message().ack()
    assert second.is_done
    assert not sender.is_connected
    assert len(bus.connections.open) == 1


def test_a_half_closed_sender_still_gets_the_answer_to_its_batch() -> None:
    bus = MemoryBus()
    sender, worker = bus.join("a"), bus.join("b")
    message = ("sendMessage", {"to": "b", "payload": {}})
    answers = sender.batch(message, ("ping", {}), message)
    sender.half_close()
    worker.next_message().ack()
    assert sender.is_connected
    worker.next_message().fail("no")
    assert all(answer.is_done for answer in answers)
    assert not sender.is_connected


def test_a_half_closed_sender_is_not_kept_for_notifications() -> None:
    bus = MemoryBus()
    sender, worker = bus.join("a"), bus.join("b")
    sender.notify("b", {"n": 1})
    sender.half_close()
    assert not sender.is_connected
    assert worker.next_message().payload == {"n": 1}


def test_a_half_closed_peer_gets_no_more_messages() -> None:
    bus = MemoryBus()
    sender, worker, other = bus.join("a"), bus.join("b"), bus.join("c")
    owed = sender.send("b", {})
    worker.send("c", {})
    worker.half_close()
    assert _messages(owed) == ["peer left before it answered"]
    assert sender.send("b", {}).result.undelivered == "no route"
    other.next_message().ack()
    assert not worker.is_connected


def test_a_half_closed_sender_of_a_message_to_itself_hears_that_it_left() -> None:
    bus = MemoryBus()
    loner = bus.join("a")
    sent = loner.send("a", {})
    loner.half_close()
    assert _messages(sent) == ["peer left before it answered"]
    assert not loner.is_connected


def test_a_stranger_that_ends_is_closed() -> None:
    bus = MemoryBus()
    stranger = bus.connect()
    stranger.half_close()
    assert not bus.connections.open


def test_a_stopping_bus_takes_no_messages_and_answers_what_it_took() -> None:
    bus = MemoryBus()
    sender, worker = bus.join("a"), bus.join("b")
    taken = sender.send("b", {})
    bus.core.is_stopping = True
    refused = sender.send("b", {})
    with pytest.raises(CallRefused) as problem:
        refused.check()
    assert problem.value.code == -32004
    assert problem.value.data == {"rule": "busy", "retrySeconds": 1}
    assert not bus.core.is_idle
    worker.next_message().ack()
    assert taken.result.acks[0].success
    assert bus.core.is_idle


def test_giving_up_answers_everybody_before_the_goodbye() -> None:
    bus = MemoryBus()
    sender = bus.join("a")
    for name in ("b", "c"):
        bus.join(name, subscribe=["all"])
    single, several = sender.send("b", {}), sender.send("all", {})
    bus.stop()
    assert _messages(single) == ["the bus is stopping"]
    assert [ack.message for ack in several.result.acks] == ["the bus is stopping"] * 2
    assert not sender.is_connected
    assert not bus.core.peers


def test_a_peer_that_subscribes_in_several_ways_is_handed_a_message_once() -> None:
    bus = MemoryBus()
    sender = bus.join("a", subscribe=["a", "*", "?", "a*"])
    sent = sender.send("a", {})
    assert len(sender.inbox) == 1
    sender.next_message().ack()
    assert len(sent.result.acks) == 1


def test_two_peers_of_one_name_both_get_it_and_both_answer() -> None:
    bus = MemoryBus()
    sender, twins = bus.join("a"), [bus.join("b"), bus.join("b")]
    sent = sender.send("b", {})
    twins[0].next_message().ack({"n": 0})
    twins[1].leave()
    assert [(ack.client_id, ack.success) for ack in sent.result.acks] == [("b", True), ("b", False)]
    assert sender.send("b", {}).is_done is False


def test_a_peer_whose_name_another_has_leaves_the_other_alone() -> None:
    bus = MemoryBus()
    sender, one, other = bus.join("a"), bus.join("b"), bus.join("b")
    one.unsubscribe("b")
    one.leave()
    sent = sender.send("b", {})
    other.next_message().ack()
    assert len(sent.result.acks) == 1


def test_a_connection_that_is_still_being_made_does_not_keep_the_bus_from_stopping() -> None:
    bus = MemoryBus()
    bus.connections.make("just accepted")
    peer = bus.join("a")
    bus.stop()
    assert not peer.is_connected


def test_what_follows_initialize_in_the_same_chunk_may_be_as_long_as_any_frame() -> None:
    bus = MemoryBus()
    worker, peer = bus.join("b"), bus.connect("a")
    padding = "x" * bus.connections.limits.max_hello_bytes
    peer.feed(
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"clientId":"a"}}\n'
        b'{"jsonrpc":"2.0","method":"sendMessage","params":{"to":"b","payload":{"x":"%s"}}}\n'
        % padding.encode()
    )
    assert peer.is_connected
    assert worker.next_message().payload == {"x": padding}
