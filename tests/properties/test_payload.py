"""A payload leaves the bus byte for byte as it came in, both ways and on every framing."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from busd.testing import MemoryBus, ScriptedPeer
from tests.properties.json_texts import chunks_of, objects

_ALL_BLANKS = " \t\r\n"


class RawAck(msgspec.Struct):
    payload: Raw


class RawReceipt(msgspec.Struct):
    acks: list[RawAck]


class RawAnswer(msgspec.Struct):
    result: RawReceipt


def _send(peer: ScriptedPeer, to: str, payload: str) -> None:
    peer.send_frame(
        f'{{"jsonrpc":"2.0","id":99,"method":"sendMessage","params":{{"payload": {payload} ,'
        f'"to":"{to}"}}}}'.encode()
    )


def _ack_payloads(peer: ScriptedPeer) -> list[bytes]:
    answer = msgspec.json.decode(peer.frames[-1], type=RawAnswer)
    return [bytes(ack.payload) for ack in answer.result.acks]


@given(objects(), objects(), st.booleans(), st.booleans())
def test_payloads_go_both_ways_byte_for_byte(
    payload: str, answer: str, sender_has_web_socket: bool, receiver_has_web_socket: bool
) -> None:
    bus = MemoryBus()
    sender = bus.join("a", web_socket=sender_has_web_socket)
    receiver = bus.join("b", web_socket=receiver_has_web_socket)
    _send(sender, "b", payload)
    call = receiver.next_message()
    assert call.raw_payload == payload.encode()
    call.answer_raw(f'{{"payload":{answer}}}'.encode())
    assert _ack_payloads(sender) == [answer.encode()]


@given(objects(_ALL_BLANKS), objects(_ALL_BLANKS))
def test_payloads_with_newlines_go_byte_for_byte_between_web_sockets(
    payload: str, answer: str
) -> None:
    bus = MemoryBus()
    sender, receiver = bus.join("a", web_socket=True), bus.join("b", web_socket=True)
    _send(sender, "b", payload)
    call = receiver.next_message()
    assert call.raw_payload == payload.encode()
    call.answer_raw(f'{{"payload":{answer}}}'.encode())
    assert _ack_payloads(sender) == [answer.encode()]


@given(objects(_ALL_BLANKS), objects(_ALL_BLANKS))
def test_newlines_in_payloads_become_spaces_on_lines(payload: str, answer: str) -> None:
    bus = MemoryBus()
    page, tool = bus.join("a", web_socket=True), bus.join("b")
    _send(page, "b", payload)
    call = tool.next_message()
    assert call.raw_payload == payload.replace("\n", " ").encode()
    call.ack()
    _send(tool, "a", "{}")
    page.next_message().answer_raw(f'{{"payload":{answer}}}'.encode())
    assert _ack_payloads(tool) == [answer.replace("\n", " ").encode()]


@given(objects(), st.lists(objects(), min_size=2, max_size=4))
def test_every_addressee_of_a_fan_out_gets_the_same_bytes(payload: str, answers: list[str]) -> None:
    bus = MemoryBus()
    sender = bus.join("a")
    receivers = [bus.join(f"b:{number}", subscribe=["all"]) for number in range(len(answers))]
    _send(sender, "all", payload)
    for receiver, answer in zip(receivers, answers, strict=True):
        call = receiver.next_message()
        assert call.raw_payload == payload.encode()
        call.answer_raw(f'{{"payload":{answer}}}'.encode())
    assert _ack_payloads(sender) == [answer.encode() for answer in answers]


@given(st.data(), objects())
def test_payloads_are_the_same_however_their_bytes_are_cut(
    data: st.DataObject, payload: str
) -> None:
    bus = MemoryBus()
    sender, receiver = bus.connect("a"), bus.join("b")
    stream = (
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"clientId":"a"}}\n'
        '{"jsonrpc":"2.0","method":"sendMessage","params":{"to":"b","payload":' + payload + "}}\n"
    ).encode()
    for chunk in data.draw(chunks_of(stream)):
        sender.feed(chunk)
    assert receiver.next_message().raw_payload == payload.encode()


@pytest.mark.parametrize("depth", [1, 100, 400])
def test_deep_payloads_go_through(depth: int) -> None:
    payload = '{"a":[' * depth + "]}" * depth
    bus = MemoryBus()
    sender, receiver = bus.join("a"), bus.join("b")
    _send(sender, "b", payload)
    assert receiver.next_message().raw_payload == payload.encode()
