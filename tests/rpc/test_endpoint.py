"""Endpoints: batches, replies nobody waits for, and frames that are nothing at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from busd.testing import MemoryBus, ScriptedPeer

TO_B = ("sendMessage", {"to": "b", "payload": {}})
TO_C = ("sendMessage", {"to": "c", "payload": {}})


def _last(peer: ScriptedPeer) -> Any:
    return json.loads(peer.frames[-1])


def test_a_batch_is_answered_as_one_array_in_the_order_of_completion() -> None:
    bus = MemoryBus()
    sender, slow, quick = bus.join("a"), bus.join("b"), bus.join("c")
    sender.frames.clear()
    to_slow, to_quick, ping = sender.batch(TO_B, TO_C, ("ping", {}))
    quick.next_message().ack()
    assert not sender.frames
    slow.next_message().ack()
    wanted = [ping.request_id, to_quick.request_id, to_slow.request_id]
    assert [answer["id"] for answer in _last(sender)] == wanted
    assert len(sender.frames) == 1


def test_the_elements_of_a_batch_do_not_wait_for_each_other() -> None:
    bus = MemoryBus()
    sender, slow, quick = bus.join("a"), bus.join("b"), bus.join("c")
    sender.batch(TO_B, TO_C)
    assert len(slow.inbox) == len(quick.inbox) == 1


def test_a_batch_of_notifications_is_not_answered() -> None:
    bus = MemoryBus()
    sender, worker = bus.join("a"), bus.join("b")
    sender.frames.clear()
    note = '{"jsonrpc":"2.0","method":"sendMessage","params":{"to":"b","payload":{}}}'
    sender.send_frame(f"[{note},{note}]".encode())
    for _ in range(2):
        worker.next_message().ack()
    assert not sender.frames


def test_a_batch_tells_each_element_what_is_wrong_with_it() -> None:
    peer = MemoryBus().join("a")
    peer.send_frame(
        b'[1, [], {"id":7}, {"jsonrpc":"2.0","id":8,"method":"none"},'
        b' {"jsonrpc":"2.0","id":9,"method":"subscribe","params":{"address":""}},'
        b' {"jsonrpc":"2.0","method":"none"}, {"id":true}]'
    )
    assert [(answer["id"], answer["error"]["code"]) for answer in _last(peer)] == [
        (None, -32600),
        (None, -32600),
        (7, -32600),
        (8, -32601),
        (9, -32602),
        (None, -32600),
    ]


def test_an_empty_batch_is_an_invalid_request() -> None:
    peer = MemoryBus().join("a")
    peer.send_frame(b" [ ] ")
    assert _last(peer)["error"]["code"] == -32600
    assert _last(peer)["id"] is None


def test_a_broken_batch_is_one_parse_error() -> None:
    peer = MemoryBus().join("a")
    peer.send_frame(b'[{"jsonrpc":"2.0","method":"ping","id":1},')
    assert _last(peer)["error"]["code"] == -32700


def test_replies_may_come_as_a_batch() -> None:
    bus = MemoryBus()
    sender, worker = bus.join("a"), bus.join("b")
    sent = [sender.send("b", {}) for _ in range(3)]
    worker.frames.clear()
    ids = [worker.next_message().call_id for _ in sent]
    worker.send_frame(
        json.dumps(
            [
                {"jsonrpc": "2.0", "id": ids[0], "result": {"message": "zero"}},
                {"jsonrpc": "2.0", "id": ids[1], "result": None},
                {"jsonrpc": "2.0", "id": ids[2], "error": {"code": 1, "message": "two"}},
            ]
        ).encode()
    )
    assert [answer.result.acks[0].message for answer in sent] == ["zero", "", "two"]
    assert not worker.frames


def test_replies_and_requests_may_share_a_batch() -> None:
    bus = MemoryBus()
    sender, worker = bus.join("a"), bus.join("b")
    sent = sender.send("b", {})
    call_id = worker.next_message().call_id
    worker.send_frame(
        b'[{"jsonrpc":"2.0","id":%d,"result":{}},{"jsonrpc":"2.0","id":%d,"method":"ping"}]'
        % (call_id, call_id)
    )
    assert sent.result.acks[0].success
    assert [answer["id"] for answer in _last(worker)] == [call_id]


@pytest.mark.parametrize("request_id", ['"1"', "1.0", "1e0", "-1", "99", "null", "[1]", "true"])
def test_a_reply_to_another_id_settles_nothing(request_id: str) -> None:
    bus = MemoryBus()
    sender, worker = bus.join("a"), bus.join("b")
    sent = sender.send("b", {})
    assert worker.next_message().call_id == 1
    for member in ('"result":{}', '"result":17', '"error":{"code":1}'):
        worker.send_frame(f'{{"jsonrpc":"2.0","id":{request_id},{member}}}'.encode())
    assert not sent.is_done


def test_a_reply_without_an_id_settles_nothing() -> None:
    bus = MemoryBus()
    sender, worker = bus.join("a"), bus.join("b")
    sent = sender.send("b", {})
    worker.frames.clear()
    worker.send_frame(b'{"jsonrpc":"2.0","result":{}}')
    assert not sent.is_done
    assert not worker.frames


def test_the_second_of_two_answers_is_ignored() -> None:
    bus = MemoryBus()
    sender, worker = bus.join("a"), bus.join("b")
    sent = sender.send("b", {})
    call = worker.next_message()
    worker.frames.clear()
    call.fail("no")
    call.ack()
    call.error(1, "no")
    assert len(sent.replies) == 1
    assert not sent.result.acks[0].success
    assert not worker.frames


def test_an_answer_to_anothers_call_is_ignored() -> None:
    bus = MemoryBus()
    sender, worker, thief = bus.join("a"), bus.join("b"), bus.join("c")
    sent = sender.send("b", {})
    call = worker.next_message()
    thief.frames.clear()
    thief.send_frame(b'{"jsonrpc":"2.0","id":%d,"result":{}}' % call.call_id)
    thief.send_frame(b'{"jsonrpc":"2.0","id":%d,"error":{}}' % call.call_id)
    assert not sent.is_done
    assert not thief.frames
    call.ack({"by": "b"})
    assert sent.result.acks[0].payload == {"by": "b"}


@pytest.mark.parametrize("frame", [b"", b" ", b"\r", b"\t \r"])
def test_a_blank_frame_is_nothing_at_all(frame: bytes) -> None:
    peer = MemoryBus().join("a")
    peer.frames.clear()
    peer.send_frame(frame)
    assert not peer.frames


@pytest.mark.parametrize(
    ("frame", "detail"),
    [
        (b"{", "truncated"),
        (b'{"id":1} x', "trailing characters"),
        (b'{"id":"\xff"}', "not UTF-8 (byte 7)"),
        (b'{"params":{"payload":"\xed\xa0\x80"}}', "not UTF-8"),
        (rb'{"id":"\ud800"}', "truncated"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"params":' * 50_000, "nested too deeply"),
    ],
)
def test_what_is_no_json_gets_a_parse_error_that_says_why(frame: bytes, detail: str) -> None:
    peer = MemoryBus().join("a")
    peer.send_frame(frame)
    error = _last(peer)["error"]
    assert (_last(peer)["id"], error["code"]) == (None, -32700)
    assert detail in error["data"]["detail"]
    assert peer.call("ping", {}).is_done


@pytest.mark.parametrize("request_id", ["0", "-5", '""', '"é"', "null", "1.5", str(2**80)])
def test_an_answer_carries_the_very_id_of_its_request(request_id: str) -> None:
    peer = MemoryBus().join("a")
    for method in ("ping", "sendMessage"):
        peer.send_frame(f'{{"jsonrpc":"2.0","id":{request_id},"method":"{method}"}}'.encode())
        assert _last(peer)["id"] == json.loads(request_id)


def test_a_batch_has_a_limit() -> None:
    peer = MemoryBus().join("a")
    peer.send_frame(b"[" + b",".join([b"1"] * 1_000) + b"]")
    assert len(_last(peer)) == 1_000
    peer.send_frame(b"[" + b",".join([b"1"] * 1_001) + b"]")
    assert (_last(peer)["id"], _last(peer)["error"]["code"]) == (None, -32600)
    assert _last(peer)["error"]["data"]["limit"] == 1_000
