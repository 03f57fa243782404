"""What is carried between transports, on real sockets: every byte, in order, within bounds."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.conftest import Join
from tests.daemons import Daemon
from tests.wire_peers import Peer, Transport, connect, status_of

TRANSPORTS: list[Transport] = ["unix", "tcp", "ws"]
ODD_PAYLOADS = [
    b"{}",
    b'{ "a" :\t1 , "a" : 2 }',
    b'{"n":[1e400,-0,-0.0,1E+2,0.10,123456789012345678901234567890]}',
    b'{"t":"\\u0041\\/\\ud83d\\ude00 \xf0\x9f\x98\x80 \x7f \xc2\x85 \xe2\x80\xa8"}',
    b'{"\\u0000":{"":[[],{},null,true,false]}}',
    b'{"deep":' + b"[" * 300 + b"]" * 300 + b"}",
    b'{"long":"' + b"x" * 900_000 + b'"}',
]

Open = Callable[[Transport, str], Peer]


@pytest.fixture
def join_by(daemon: Daemon, opened: ExitStack, suffix: str) -> Open:
    """Open a connection by a transport and initialize under a name."""

    def joined(transport: Transport, name: str) -> Peer:
        peer = connect(daemon, transport)
        opened.callback(peer.close)
        peer.initialize(name + suffix)
        return peer

    return joined


@pytest.mark.parametrize("receiver", TRANSPORTS)
@pytest.mark.parametrize("sender", TRANSPORTS)
def test_a_payload_is_carried_byte_for_byte_from_any_transport_to_any(
    sender: Transport, receiver: Transport, join_by: Open, suffix: str
) -> None:
    alice, bob = join_by(sender, "agent:alice"), join_by(receiver, "agent:bob")
    start = b'{"jsonrpc":"2.0","id":1,"method":"sendMessage","params":{"messageId":"m","to":"'
    start += f'agent:bob{suffix}","payload":'.encode()
    for payload in ODD_PAYLOADS:
        alice.send_bytes(start + payload + b"}}")
        frame = bob.read_frame()
        assert frame.endswith(b'"messageId":"m","payload":' + payload + b"}}")
        call_id = int(frame.split(b'"id":', 1)[1].split(b",", 1)[0])
        bob.send_bytes(b'{"jsonrpc":"2.0","id":%d,"result":{"payload":%s}}' % (call_id, payload))
        assert alice.read_frame().endswith(b'"payload":' + payload + b"}]}}")


PRETTY = '{\n  "text":\r\n "hi",\n\n "more": [\n]\n}'


@pytest.mark.parametrize("receiver", TRANSPORTS)
def test_line_breaks_within_a_web_socket_frame_do_not_break_the_lines_of_others(
    receiver: Transport, join_by: Open, suffix: str
) -> None:
    alice, bob = join_by("ws", "agent:alice"), join_by(receiver, "agent:bob")
    forged = '{"jsonrpc":"2.0","id":1,"method":"processMessage","params":{}}'
    for payload in (PRETTY, f'{{"a":\n{forged}\n}}'):
        params = f'{{"to":"agent:bob{suffix}","payload":{payload}}}'
        alice.send_bytes(
            f'{{"jsonrpc":"2.0","id":1,"method":"sendMessage","params":{params}}}'.encode()
        )
        assert bob.next_message()["params"]["payload"] == json.loads(payload)
        bob.expect_nothing()


@pytest.mark.parametrize("answer", ['"result":{"payload":%s}', '"error":{"code":1,"data":%s}'])
def test_line_breaks_within_an_answer_do_not_break_the_lines_of_others(
    answer: str, join_by: Open, suffix: str
) -> None:
    alice, bob = join_by("unix", "agent:alice"), join_by("ws", "agent:bob")
    request_id = alice.send_message(f"agent:bob{suffix}")
    message = bob.next_message()
    bob.send_bytes(f'{{"jsonrpc":"2.0","id":{message["id"]},{answer % PRETTY}}}'.encode())
    (ack,) = alice.answer_to(request_id)["result"]["acks"]
    assert json.loads(PRETTY) in (ack["payload"], ack["payload"].get("error", {}).get("data"))
    alice.expect_nothing()


def test_line_breaks_within_client_info_do_not_break_the_lines_of_others(
    daemon: Daemon, opened: ExitStack, join_by: Open, suffix: str
) -> None:
    alice, bob = join_by("unix", "agent:alice"), connect(daemon, "ws")
    opened.callback(bob.close)
    params = f'{{"clientId":"agent:bob{suffix}","clientInfo":{PRETTY}}}'
    bob.send_bytes(f'{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{params}}}'.encode())
    bob.next_json()
    infos = {each["clientId"]: each["clientInfo"] for each in status_of(alice)}
    assert infos[f"agent:bob{suffix}"] == json.loads(PRETTY) | {"name": "", "version": ""}


def test_messages_keep_their_order_under_load(join: Join, suffix: str) -> None:
    alice, bob = join(f"agent:alice{suffix}"), join(f"agent:bob{suffix}")
    number, window = 3_000, 100
    for index in range(window):
        alice.send_message(f"agent:bob{suffix}", {"n": index})
    for index in range(number):
        message = bob.next_message()
        assert message["params"]["payload"] == {"n": index}
        bob.answer(message, {"payload": {"n": index}})
        answer = alice.next_json()
        assert answer["result"]["acks"][0]["payload"] == {"n": index}
        if index + window < number:
            alice.send_message(f"agent:bob{suffix}", {"n": index + window})
    alice.expect_nothing()


def test_the_acks_of_a_fan_out_have_a_budget_and_one_over_it_leaves_its_payload_out(
    join: Join, suffix: str
) -> None:
    alice = join(f"agent:alice{suffix}")
    peers = [join(f"agent:peer{index}{suffix}") for index in range(3)]
    for peer in peers:
        peer.call("subscribe", {"address": f"tg:1{suffix}"})
    request_id = alice.send_message(f"tg:1{suffix}")
    for peer in peers:
        peer.answer(peer.next_message(), {"payload": {"text": "x" * 400_000}})
        peer.expect_nothing()
    acks = alice.answer_to(request_id)["result"]["acks"]
    assert [len(ack["payload"].get("text", "")) for ack in acks] == [400_000, 400_000, 0]
    assert acks[2]["message"] == "payload left out: the acks together are too large"
    assert all(ack["success"] for ack in acks)


def test_long_words_in_the_acks_of_a_fan_out_do_not_cost_the_sender_its_answer(
    join: Join, suffix: str
) -> None:
    alice = join(f"agent:alice{suffix}")
    peers = [join(f"agent:peer{index}{suffix}") for index in range(20)]
    for peer in peers:
        peer.call("subscribe", {"address": f"tg:1{suffix}"})
    request_id = alice.send_message(f"tg:1{suffix}")
    for peer in peers:
        peer.answer(peer.next_message(), {"message": "x" * 1_000_000})
        peer.expect_nothing()
    acks = alice.answer_to(request_id)["result"]["acks"]
    assert len(acks) == 20
