"""Replies that nobody waits for, and ids that are used twice."""

from __future__ import annotations

from contextlib import ExitStack

from tests.conftest import DaemonWith, Join
from tests.wire_peers import Json, Peer, Transport, join_by


def test_a_reply_nobody_asked_for_is_passed_over(alice: Peer) -> None:
    for call_id in (0, 1, -1, 10**30, 1.5, "1", None):
        alice.send_json({"jsonrpc": "2.0", "id": call_id, "result": {"success": True}})
        alice.send_json({"jsonrpc": "2.0", "id": call_id, "error": {"code": 1, "message": "no"}})
    alice.send_json({"jsonrpc": "2.0", "result": {"success": True}})
    alice.send_json([{"jsonrpc": "2.0", "id": 1, "result": {}}])
    alice.expect_nothing()


def test_a_reply_to_the_call_of_another_peer_is_passed_over(
    alice: Peer, witness: Peer, join: Join, suffix: str
) -> None:
    mallory = join(f"agent:mallory{suffix}")
    request_id = alice.send_message(f"agent:witness{suffix}")
    message = witness.next_message()
    mallory.answer(message, {"success": True, "message": "forged"})
    mallory.send_json({"jsonrpc": "2.0", "id": message["id"], "error": {"code": 1}})
    mallory.expect_nothing()
    witness.answer(message, {"message": "real"})
    answer = alice.answer_to(request_id)
    assert [ack["message"] for ack in answer["result"]["acks"]] == ["real"]


def test_one_addressee_of_a_fan_out_cannot_answer_for_another(
    alice: Peer, join: Join, suffix: str
) -> None:
    bob, mallory = join(f"agent:bob{suffix}"), join(f"agent:mallory{suffix}")
    for peer in (bob, mallory):
        peer.call("subscribe", {"address": f"tg:1{suffix}"})
    request_id = alice.send_message(f"tg:1{suffix}")
    to_bob, to_mallory = bob.next_message(), mallory.next_message()
    mallory.answer(to_mallory, {"message": "mine"})
    mallory.answer(to_bob, {"message": "forged"})
    mallory.expect_nothing()
    alice.expect_nothing()
    bob.answer(to_bob, {"message": "real"})
    acks = alice.answer_to(request_id)["result"]["acks"]
    assert {ack["clientId"]: ack["message"] for ack in acks} == {
        f"agent:bob{suffix}": "real",
        f"agent:mallory{suffix}": "mine",
    }


def test_requests_with_the_same_id_are_all_answered(
    alice: Peer, witness: Peer, suffix: str
) -> None:
    for message_id in ("one", "two"):
        params: Json = {"to": f"agent:witness{suffix}", "messageId": message_id, "payload": {}}
        alice.request("sendMessage", params, id=7)
    alice.request("unsubscribe", {"address": "tg:1"}, id=7)
    refused = alice.next_json()  # before anybody has answered the others
    first, second = witness.next_message(), witness.next_message()
    witness.answer(second, {})
    witness.answer(first, {})
    answers = [refused, *(alice.next_json() for _ in range(2))]
    assert [answer["id"] for answer in answers] == [7, 7, 7]
    assert answers[0]["error"]["code"] == -32003
    assert [answer["result"]["messageId"] for answer in answers[1:]] == ["two", "one"]
    alice.expect_nothing()


def test_a_second_answer_to_the_same_message_is_passed_over(
    alice: Peer, witness: Peer, suffix: str
) -> None:
    request_id = alice.send_message(f"agent:witness{suffix}")
    message = witness.next_message()
    witness.answer(message, {"message": "first"})
    witness.answer(message, {"message": "second"})
    witness.send_json({"jsonrpc": "2.0", "id": message["id"], "error": {"code": 1}})
    witness.expect_nothing()
    acks = alice.answer_to(request_id)["result"]["acks"]
    assert [ack["message"] for ack in acks] == ["first"]
    alice.expect_nothing()


def test_a_peer_that_never_answers_is_a_failed_ack_when_its_time_is_up(
    daemon_with: DaemonWith, transport: Transport, opened: ExitStack, suffix: str
) -> None:
    daemon = daemon_with({"delivery.ack_seconds": 0.5})
    alice = join_by(daemon, transport, f"agent:alice{suffix}", opened)
    silent = join_by(daemon, transport, f"agent:silent{suffix}", opened)
    request_id = alice.send_message(f"agent:silent{suffix}", messageId="m")
    silent.next_message()
    ack = {
        "success": False,
        "message": "no answer in time",
        "outcome": "timeout",
        "payload": {},
        "clientId": f"agent:silent{suffix}",
    }
    result = {"accepted": True, "messageId": "m", "acks": [ack]}
    assert alice.next_json() == {"jsonrpc": "2.0", "id": request_id, "result": result}
    silent.expect_nothing()


def test_an_answer_with_absurd_numbers_is_carried_and_harms_nobody(
    alice: Peer, witness: Peer, suffix: str
) -> None:
    request_id = 10**40
    alice.request("sendMessage", {"to": f"agent:witness{suffix}", "payload": {}}, id=request_id)
    message = witness.next_message()
    huge = b"9" * 40
    witness.send_bytes(
        b'{"jsonrpc":"2.0","id":%d,"result":{"retrySeconds":%s,"payload":{"n":1e999}}}'
        % (message["id"], huge)
    )
    witness.expect_nothing()
    (ack,) = alice.answer_to(request_id)["result"]["acks"]
    assert ack["retrySeconds"] == int(huge)
    alice.expect_nothing()
