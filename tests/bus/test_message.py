"""Acks are read leniently; what they say is never guessed."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import UNSET, Raw

from busd.bus.message import Ack, read_ack
from busd.testing import MemoryBus


@pytest.mark.parametrize(
    ("result", "ack"),
    [
        (b"null", Ack()),
        (b"{}", Ack()),
        (b'{"success":null,"message":null,"payload":null,"retrySeconds":null}', Ack()),
        (b'{"success":false,"message":"no"}', Ack(False, "no")),
        (b'{"payload": { "a" : 1 } }', Ack(payload=Raw(b'{ "a" : 1 }'))),
        (b'{"shouldRetry":true,"retrySeconds":2.5}', Ack(should_retry=True, retry_seconds=2.5)),
        (b'{"clientId":"somebody:else","other":[1]}', Ack()),
    ],
)
def test_what_is_missing_or_null_has_its_default(result: bytes, ack: Ack) -> None:
    read = read_ack(Raw(result))
    assert msgspec.json.encode(read) == msgspec.json.encode(ack)
    assert read.client_id is UNSET


@pytest.mark.parametrize(
    "result", [b"17", b'"ok"', b"[]", b"true", b'{"success":"yes"}', b'{"message":1}']
)
def test_what_has_another_type_is_no_ack(result: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        read_ack(Raw(result))


@pytest.mark.parametrize("result", [b'{"payload":null}', b'{"success":true,"payload":null}'])
def test_a_payload_of_null_is_an_empty_one(result: bytes) -> None:
    bus = MemoryBus()
    sent, worker = bus.join("a"), bus.join("b")
    answer = sent.send("b", {})
    worker.next_message().answer_raw(result)
    assert answer.result.acks[0].payload == {}


@pytest.mark.parametrize("payload", [b"17", b'"text"', b"[{}]", b"true"])
def test_an_ack_whose_payload_is_no_object_is_malformed(payload: bytes) -> None:
    bus = MemoryBus()
    sender, worker = bus.join("a"), bus.join("b")
    answer = sender.send("b", {})
    worker.next_message().answer_raw(b'{"success":true,"payload":' + payload + b"}")
    ack = answer.result.acks[0]
    assert (ack.success, ack.payload) == (False, {})
    assert ack.message.startswith("malformed answer")
