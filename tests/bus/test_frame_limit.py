"""No frame leaves that is larger than what the bus announced to the peer it goes to."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from busd.bus.access import Grant
from busd.testing import MemoryBus, ScriptedPeer
from busd.testing.answers import ReceiptSeen
from busd.wire.connection import WireLimits
from busd.wire.credentials import Credentials

LIMIT = 4_096
WIRE = WireLimits(max_frame_bytes=LIMIT, max_hello_bytes=LIMIT)


def largest(*peers: ScriptedPeer) -> int:
    """Return the size of the largest frame that any of these peers got."""
    return max(len(frame) for peer in peers for frame in peer.frames)


def last(peer: ScriptedPeer) -> Any:
    return json.loads(peer.frames[-1])


def test_a_message_that_has_grown_over_the_limit_on_its_way_is_a_failed_ack() -> None:
    bus = MemoryBus(wire=WIRE)
    sender, receiver = bus.join("agent:a-rather-long-name"), bus.join("b")
    head = b'{"jsonrpc":"2.0","id":1,"method":"sendMessage","params":{"to":"b","payload":{"t":"'
    tail = b'"}}}'
    sender.send_frame(head + b"x" * (LIMIT - len(head) - len(tail)) + tail)  # from, messageId: no
    [ack] = last(sender)["result"]["acks"]
    assert (ack["success"], ack["clientId"]) == (False, "b")
    assert ack["message"] == f"message is too large: the peer takes {LIMIT} bytes"
    assert ack["outcome"] == "too_large"
    assert not receiver.inbox
    assert receiver.call("ping", {}).result


def test_each_peer_has_the_limit_that_was_announced_to_it() -> None:
    grants = [Grant(name="big", uid=1, max_frame_bytes=20_000), Grant(name="small", uid=2)]
    bus = MemoryBus(wire=WIRE, policy="strict", grants=grants)
    big = bus.connect("big", credentials=Credentials(uid=1, by="unix"))
    other = bus.connect("other", credentials=Credentials(uid=1, by="unix"))
    small = bus.connect("small", credentials=Credentials(uid=2, by="unix"))
    for peer in (big, other, small):
        peer.call("initialize", {"clientId": peer.name})
    assert small.frames
    sent = [big.send(to, {"text": "x" * 10_000}) for to in ("other", "small")]
    other.next_message().ack({"text": "y" * 10_000})
    assert [each.result.acks[0].success for each in sent] == [True, False]
    assert largest(small) <= LIMIT
    back = small.send("big", {"text": "hi"})
    big.next_message().ack({"text": "y" * 10_000})
    [ack] = back.result.acks
    assert (ack.success, ack.payload) == (True, {})
    assert ack.message == "payload left out: the acks together are too large"
    assert largest(small) <= LIMIT


@pytest.mark.parametrize("answer", ["payload", "message", "error"])
def test_an_ack_that_is_too_large_is_cut_short_and_says_so(answer: str) -> None:
    bus = MemoryBus(wire=WIRE)
    sender, receiver = bus.join("a" * 200), bus.join("b" * 200)
    sent = sender.send(receiver.name, {})
    call = receiver.next_message()
    room = LIMIT - 60
    if answer == "payload":
        call.ack({"t": "x" * (room - 90)})
    elif answer == "message":
        call.fail("x" * (room - 60))
    else:
        body = {"code": 7, "message": "no", "data": "x" * (room - 60)}
        receiver.send_frame(
            msgspec.json.encode({"jsonrpc": "2.0", "id": call.call_id, "error": body})
        )
    [ack] = sent.result.acks
    assert ack.success == (answer == "payload")
    assert ack.message.endswith("…") or "left out" in ack.message
    assert largest(sender) <= LIMIT


def test_acks_that_do_not_fit_into_one_frame_are_counted() -> None:
    bus = MemoryBus(wire=WIRE)
    sender = bus.join("a")
    receivers = [bus.join(f"b{number:03}" + "x" * 100) for number in range(60)]
    for receiver in receivers:
        receiver.call("subscribe", {"address": "all"})
    sender.call("sendMessage", {"to": "all", "payload": {}})
    for receiver in receivers:
        receiver.next_message().ack({"text": "y" * 50})
    result = last(sender)["result"]
    assert result["acksLeftOut"] + len(result["acks"]) == 60
    assert len(result["acks"]) > 10
    assert all(ack["success"] for ack in result["acks"])
    assert largest(sender) <= LIMIT


def test_the_answers_to_a_batch_fit_into_one_frame() -> None:
    bus = MemoryBus(wire=WIRE)
    for number in range(8):
        bus.join(f"agent:{number}")
    peer = bus.join("a")
    answers = peer.batch(*[("getStatus", {})] * 6)
    assert answers[0].error is None
    assert answers[-1].error is not None
    assert answers[-1].error.code == -32004
    assert largest(peer) <= LIMIT


def test_a_message_of_a_full_batch_that_was_delivered_is_answered_with_a_receipt() -> None:
    """An error would make the sender send it again."""
    bus = MemoryBus(wire=WIRE)
    sender, worker = bus.join("a"), bus.join("b")
    for team_member in range(3):
        bus.join(f"t{team_member}", subscribe=["team"])
    to_one = [("sendMessage", {"to": "b", "messageId": f"m{n}", "payload": {}}) for n in range(15)]
    to_all = ("sendMessage", {"to": "team", "payload": {}})
    to_none = ("sendMessage", {"to": "nobody", "messageId": "é" * 100, "payload": {}})
    answers = sender.batch(("getStatus", {}), *to_one, to_all, ("ping", {}), to_none)
    for _ in to_one:
        worker.next_message().ack({"text": "x" * 400})
    bus.advance(61)  # the team does not answer
    assert largest(sender) <= LIMIT
    receipts = [msgspec.json.decode(answer.raw, type=ReceiptSeen) for answer in answers[1:17]]
    assert [receipt.message_id for receipt in receipts[:15]] == [f"m{n}" for n in range(15)]
    assert all(receipt.accepted for receipt in receipts)
    assert [len(each.acks) + each.acks_left_out for each in receipts] == [1] * 15 + [3]
    assert receipts[0].acks[0].payload == {"text": "x" * 400}
    assert receipts[14].acks_left_out == 1
    assert answers[-1].result["undelivered"] == "no route"


@pytest.mark.parametrize("message_id", [None, "", 0, 7, "\x01" * 40, "é" * 40, "m"])
def test_the_shortest_receipt_has_room_in_a_batch_whatever_its_ids_are(message_id: object) -> None:
    bus = MemoryBus(wire=WIRE)
    sender, worker = bus.join("a"), bus.join("b")
    message = ("sendMessage", {"to": "b", "messageId": message_id, "payload": {}})
    largest_batch = sender.batch(message)
    while True:
        handed = list(worker.inbox)
        answers = sender.batch(*[message] * (len(largest_batch) + 1))
        if len(worker.inbox) == len(handed):
            break  # refused as a whole, and not delivered
        largest_batch = answers
    for each in handed:
        each.fail("x" * 1_000)
    assert all(answer.result["accepted"] for answer in largest_batch)
    assert largest_batch[-1].result["acksLeftOut"] == 1
    assert largest(sender) <= LIMIT
    assert sender.is_connected


def test_a_batch_whose_errors_alone_are_too_large_is_refused_as_a_whole() -> None:
    peer = MemoryBus(wire=WIRE).join("a")
    peer.send_frame(b"[" + b",".join([b"1"] * 900) + b"]")
    answer = last(peer)
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)
    assert answer["error"]["data"]["rule"] == "max_frame_bytes"
    assert peer.call("ping", {}).result


def test_an_error_repeats_only_so_much_of_what_it_refuses() -> None:
    peer = MemoryBus(wire=WIRE).join("a")
    pattern = "é" * 1_500
    refused = peer.call("unsubscribe", {"address": pattern})
    assert refused.error is not None
    assert (refused.error.code, refused.error.data) == (-32003, {"rule": "subscription"})
    peer.send_frame(b'{"id":"' + b"x" * (LIMIT - 20) + b'"}')
    assert last(peer)["error"]["code"] == -32600
    assert largest(peer) <= LIMIT


def test_any_other_answer_that_is_too_large_is_an_error_that_says_so() -> None:
    peer = MemoryBus(wire=WIRE).join("a")
    refused = peer.call("rpc.discover", {})
    assert refused.error is not None
    assert refused.error.code == -32602
    assert refused.error.message.endswith(f"a frame at most {LIMIT}; ask for less at a time")
    assert largest(peer) <= LIMIT


def test_get_status_comes_in_as_many_answers_as_it_needs() -> None:
    bus = MemoryBus(wire=WIRE)
    names = [f"agent:{number:03}" for number in range(100)]
    peers = [bus.join(name) for name in names]
    asker = peers[0]
    seen: list[str] = []
    params: dict[str, object] = {}
    while True:
        status = asker.call("getStatus", params).result
        seen += [each["clientId"] for each in status["connections"]]
        if "moreConnections" not in status:
            break
        assert status["moreConnections"] == len(names) - len(seen)
        params = {"after": status["connections"][-1]["connectionId"]}
    assert seen == names
    assert largest(asker) <= LIMIT


def test_a_peer_whose_status_would_fill_a_frame_is_shown_in_short() -> None:
    bus = MemoryBus(wire=WIRE)
    peer = bus.join("busy")
    for number in range(300):
        peer.call("subscribe", {"address": f"tg:{number}"})
    [shown] = peer.call("getStatus", {}).result["connections"]
    assert shown["subscriptions"] == []
    assert shown["moreSubscriptions"] == 301
    assert largest(peer) <= LIMIT


@pytest.mark.parametrize("after", ["", "conn", "conn-x", "conn-" + "9" * 4_000, "-1x"])
def test_get_status_after_what_is_no_connection_is_refused(after: str) -> None:
    peer = MemoryBus().join("a")
    refused = peer.call("getStatus", {"after": after})
    assert refused.error is not None
    assert refused.error.code == -32602
