"""`sendMessage` goes straight to the bus or through jsonrpcserver; both must answer alike."""

from __future__ import annotations

import json
import re
from math import inf
from typing import Any

import pytest
from msgspec import UNSET

from busd.bus.access import Policy
from busd.bus.methods import methods
from busd.bus.peer import RemotePeer
from busd.errors import RequestError
from busd.rpc.endpoint import Asker
from busd.rpc.envelope import RequestId, Result, decode_loose, encode, encode_failure
from busd.rpc.methods import Methods, dispatch
from busd.testing import MemoryBus
from tests.conftest import Join


class Recorder:
    """Writes down the answers, as an endpoint would send them."""

    max_frame_bytes = inf
    out = ()

    def __init__(self) -> None:
        self.answers: list[bytes] = []

    def answer(self, request_id: RequestId, result: Any) -> None:
        if request_id is not UNSET:
            self.answers.append(encode(Result(request_id, result)))

    def answer_encoded(self, frame: bytes) -> None:
        self.answers.append(frame)

    def fail(self, request_id: RequestId, fault: RequestError) -> None:
        if request_id is not UNSET:
            self.answers.append(encode_failure(request_id, fault))

    def charge(self) -> None: ...


def go_direct(peer: RemotePeer, frame: bytes, asker: Asker) -> None:
    peer.receive(frame, asker)


def go_by_jsonrpcserver(peer: RemotePeer, frame: bytes, asker: Asker) -> None:
    dispatch(methods.table, decode_loose(frame), peer, asker)


SENDS = [
    '{"from":"agent:alice","to":"agent:bob","messageId":"m","payload":{}}',
    '{"from":"tg:1","to":"agent:bob","messageId":"m","payload":{"a":[1e400,{"b":null}]}}',
    '{"to":"agent:bob","payload":{"n": 1.0}}',
    '{"to":"agent:nobody","messageId":"m","payload":{}}',
    '{"to":"agent:nobody","payload":{},"more":1}',
    '{"to":"agent:bob","messageId":"","payload":{}}',
    f'{{"to":"agent:bob","messageId":"{"i" * 257}","payload":{{}}}}',
    '{"from":"","to":"agent:bob","payload":{}}',
    '{"from":"tg:*","to":"agent:bob","payload":{}}',
    '{"from":"a b","to":"agent:bob","payload":{}}',
    '{"from":7,"to":"agent:bob","payload":{}}',
    '{"from":null,"to":"agent:bob","payload":{}}',
    '{"to":"","payload":{}}',
    '{"to":"agent:?","payload":{}}',
    '{"to":"\\u0000","payload":{}}',
    '{"to":["agent:bob"],"payload":{}}',
    '{"to":"agent:bob","messageId":7,"payload":{}}',
    '{"to":"agent:bob","payload":[]}',
    '{"to":"agent:bob","payload":"}"}',
    '{"to":"agent:bob","payload":null}',
    '{"to":"agent:bob"}',
    '{"payload":{}}',
    "{}",
    "[]",
]


@pytest.mark.parametrize("policy", ["open", "strict"])
@pytest.mark.parametrize("request_id", ["7", '"seven"', "null", None])
@pytest.mark.parametrize("params", SENDS)
def test_both_routes_of_send_message_answer_alike(
    params: str, request_id: str | None, policy: Policy
) -> None:
    start = "" if request_id is None else f'"id":{request_id},'
    frame = f'{{"jsonrpc":"2.0",{start}"method":"sendMessage","params":{params}}}'.encode()
    seen = []
    for go in (go_direct, go_by_jsonrpcserver):
        bus, recorder = MemoryBus(policy=policy), Recorder()
        bus.join("agent:alice")
        bob = bus.join("agent:bob", subscribe=["tg:*"])
        bob.frames.clear()
        alice = next(iter(bus.core.remote_peers))
        go(alice, frame, recorder)
        bus.sweep()  # flushes
        while bob.inbox:
            bob.next_message().ack({"got": 1})
        seen.append(_without_ids(recorder.answers, bob.frames))
    assert seen[0] == seen[1]
    assert len(seen[0][0]) == (request_id is not None)


@pytest.mark.parametrize("params", SENDS)
def test_both_routes_answer_alike_on_the_wire(params: str, join: Join, suffix: str) -> None:
    # The direct route takes ids that are integers or strings; a fraction goes the other way.
    alice = join(f"agent:alice{suffix}")
    named = params.replace("agent:bob", f"agent:nobody{suffix}").replace('"m"', '"msg_"')
    answers = []
    for request_id in (7, 7.5):
        text = f'{{"jsonrpc":"2.0","id":{request_id},"method":"sendMessage","params":{named}}}'
        alice.send_bytes(text.encode())
        answer = alice.next_json()
        assert answer.pop("id") == request_id
        answers.append(json.dumps(answer).encode())
    assert _without_ids(answers[:1]) == _without_ids(answers[1:])


def _without_ids(*lists: list[bytes]) -> list[list[bytes]]:
    """Put one messageId for all that the bus made."""
    return [[re.sub(rb"msg_[0-9A-Z]{26}", b"msg_", each) for each in many] for many in lists]


def test_a_method_that_breaks_answers_minus_32603_and_gives_nothing_away() -> None:
    table: Methods[None] = Methods()

    @table.register("break", dict, dict)
    def breaks(caller: None, params: Any, asker: Asker, request_id: RequestId, /) -> Any:
        raise LookupError("the password is swordfish")

    recorder = Recorder()
    dispatch(
        table.table, decode_loose(b'{"jsonrpc":"2.0","id":1,"method":"break"}'), None, recorder
    )
    message = "internal error; the log of the bus has the details"
    error = {"code": -32603, "message": message, "data": {"rule": "internal"}}
    assert [json.loads(each) for each in recorder.answers] == [
        {"jsonrpc": "2.0", "id": 1, "error": error}
    ]
