"""Deliveries: acks are gathered within their budgets, and waited for no longer than needed."""

from __future__ import annotations

from busd.bus.delivery import DeliveryLimits
from busd.testing import Answer, MemoryBus, ReceiptSeen, ScriptedPeer

LEFT_OUT = "payload left out: the acks together are too large"


def _fan_out(bus: MemoryBus, count: int) -> tuple[Answer[ReceiptSeen], list[ScriptedPeer]]:
    workers = [bus.join(f"w:{number}", subscribe=["all"]) for number in range(count)]
    return bus.join("a").send("all", {}), workers


def _payload(size: int) -> dict[str, str]:
    return {"x": "y" * (size - len('{"x":""}'))}


def test_acks_come_in_the_order_of_their_answers() -> None:
    sent, workers = _fan_out(MemoryBus(), 3)
    for worker in reversed(workers):
        assert not sent.is_done
        worker.next_message().ack()
    assert [ack.client_id for ack in sent.result.acks] == ["w:2", "w:1", "w:0"]


def test_one_answer_has_a_budget_for_its_payloads() -> None:
    sent, workers = _fan_out(MemoryBus(DeliveryLimits(max_ack_bytes=250)), 3)
    for worker in workers:
        worker.next_message().ack(_payload(100))
    assert [len(ack.payload) for ack in sent.result.acks] == [1, 1, 0]
    assert [ack.message for ack in sent.result.acks] == ["", "", LEFT_OUT]
    assert all(ack.success for ack in sent.result.acks)


def test_a_payload_that_fits_exactly_is_kept() -> None:
    sent, workers = _fan_out(MemoryBus(DeliveryLimits(max_ack_bytes=200)), 2)
    for worker in workers:
        worker.next_message().ack(_payload(100))
    assert [ack.payload for ack in sent.result.acks] == [_payload(100)] * 2


def test_all_answers_together_have_a_budget_for_what_waits() -> None:
    bus = MemoryBus(DeliveryLimits(max_held_bytes=250))
    first, workers = _fan_out(bus, 2)
    second = bus.join("c").send("all", {})
    quick = workers[0]
    quick.next_message().ack(_payload(200))
    assert bus.core._held.count == 200
    quick.next_message().ack(_payload(200))
    assert bus.core._held.count == 200
    for _ in range(2):
        workers[1].next_message().ack()
    assert [ack.message for ack in first.result.acks] == ["", ""]
    assert [ack.message for ack in second.result.acks] == [LEFT_OUT, ""]
    assert bus.core._held.count == 0


def test_what_is_held_is_let_go_when_a_slow_peer_is_given_up() -> None:
    bus = MemoryBus()
    sent, workers = _fan_out(bus, 2)
    workers[0].next_message().ack(_payload(100))
    assert bus.core._held.count == 100
    bus.advance(60)
    assert bus.core._held.count == 0
    assert [ack.message for ack in sent.result.acks] == ["", "no answer in time"]


def test_what_is_held_for_a_sender_that_left_is_let_go_in_the_end() -> None:
    bus = MemoryBus()
    workers = [bus.join(f"w:{number}", subscribe=["all"]) for number in range(2)]
    sender = bus.join("a")
    sender.send("all", {})
    workers[0].next_message().ack(_payload(100))
    sender.leave()
    workers[1].leave()
    assert bus.core._held.count == 0


def test_the_only_ack_has_no_budget_but_the_frame() -> None:
    bus = MemoryBus(DeliveryLimits(max_ack_bytes=10, max_held_bytes=10))
    sent, workers = _fan_out(bus, 1)
    workers[0].next_message().ack(_payload(100))
    assert sent.result.acks[0].payload == _payload(100)


def test_an_error_becomes_a_failed_ack_that_tells_all_of_it() -> None:
    sent, workers = _fan_out(MemoryBus(), 1)
    workers[0].next_message().error(-7, "no disk", {"free": 0})
    ack = sent.result.acks[0]
    assert (ack.success, ack.message) == (False, "no disk")
    assert ack.payload == {"error": {"code": -7, "message": "no disk", "data": {"free": 0}}}


def test_an_error_beside_a_result_of_null_is_an_error() -> None:
    sent, (worker,) = _fan_out(MemoryBus(), 1)
    call_id = worker.next_message().call_id
    worker.send_frame(
        b'{"jsonrpc":"2.0","id":%d,"result":null,"error":{"code":1,"message":"no"}}' % call_id
    )
    assert (sent.result.acks[0].success, sent.result.acks[0].message) == (False, "no")


def test_a_result_beside_an_error_of_null_is_a_result() -> None:
    sent, (worker,) = _fan_out(MemoryBus(), 1)
    call_id = worker.next_message().call_id
    worker.send_frame(b'{"jsonrpc":"2.0","id":%d,"result":{},"error":null}' % call_id)
    assert sent.result.acks[0].success


def test_a_peer_cannot_answer_in_anothers_name() -> None:
    sent, (worker,) = _fan_out(MemoryBus(), 1)
    worker.next_message().answer_raw(b'{"success":true,"clientId":"agent:boss"}')
    assert sent.result.acks[0].client_id == "w:0"


def test_a_long_message_counts_like_a_payload() -> None:
    bus = MemoryBus(DeliveryLimits(max_ack_bytes=1_000))
    sent, workers = _fan_out(bus, 2)
    for worker in workers:
        worker.next_message().fail("x" * 900)
    assert [ack.message for ack in sent.result.acks] == ["x" * 900, "x" * 200 + "…"]
    assert bus.core._held.count == 0
