"""Acks are read leniently; what they say is never guessed."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from busd.bus.message import Ack, Outcome, PeerAck, read_ack
from busd.testing import MemoryBus


@pytest.mark.parametrize(
    ("result", "ack"),
    [
        (b"null", PeerAck()),
        (b"{}", PeerAck()),
        (b'{"success":null,"message":null,"payload":null,"retrySeconds":null}', PeerAck()),
        (b'{"success":false,"message":"no"}', PeerAck(False, "no")),
        (b'{"payload": { "a" : 1 } }', PeerAck(payload=Raw(b'{ "a" : 1 }'))),
        (b'{"shouldRetry":true,"retrySeconds":2.5}', PeerAck(True, "", True, 2.5)),
        (b'{"other":[1]}', PeerAck()),
    ],
)
def test_what_is_missing_or_null_has_its_default(result: bytes, ack: PeerAck) -> None:
    assert msgspec.json.encode(read_ack(Raw(result))) == msgspec.json.encode(ack)


@pytest.mark.parametrize("success", [b"false", b"true", b"null"])  # null is read leniently
def test_who_answered_and_the_outcome_are_not_for_the_peer_to_say(success: bytes) -> None:
    bus = MemoryBus()
    sender, worker = bus.join("a"), bus.join("b")
    sent = sender.send("b", {})
    members = b',"clientId":"somebody:else","outcome":"busy"}'
    worker.next_message().answer_raw(b'{"success":' + success + members)
    [ack] = sent.result.acks
    assert (ack.client_id, ack.outcome) == ("b", "")


@pytest.mark.parametrize(
    ("ack", "outcome"),
    [
        (b"{}", Outcome.OK),
        (b'{"success":false}', Outcome.REFUSED),
        (b'{"success":false,"outcome":"lost"}', Outcome.LOST),
        (b'{"success":false,"outcome":"of a later version"}', Outcome.REFUSED),
    ],
)
def test_a_client_reads_the_outcome_from_an_ack(ack: bytes, outcome: Outcome) -> None:
    assert msgspec.json.decode(ack, type=Ack).outcome is outcome


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
    assert ack.outcome == Outcome.MALFORMED
