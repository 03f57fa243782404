"""The transports on real sockets: what is carried between them, and how connections end."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from websockets.sync.client import connect as open_web_socket

from tests.conftest import DaemonWith, Join
from tests.daemons import Daemon, open_daemon
from tests.wire_peers import (
    PING,
    Closed,
    Peer,
    Transport,
    WebSocketPeer,
    connect,
    open_tcp,
    open_unix,
    upgrade_lines,
)

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


# What is carried


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
        assert b'"payload":' + payload + b"," in alice.read_frame()


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
    assert infos[f"agent:bob{suffix}"] == json.loads(PRETTY)


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


# How a connection begins


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_lines_may_come_one_byte_at_a_time(open_peer: Callable[[], Peer], suffix: str) -> None:
    peer = open_peer()
    hello = {"clientId": f"agent:alice{suffix}"}
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    for byte in text.encode() + b"\r\n":
        peer.sock.sendall(bytes([byte]))
    assert peer.next_json()["id"] == 1
    peer.expect_nothing()


def test_a_web_socket_may_come_one_byte_at_a_time(
    daemon: Daemon, opened: ExitStack, suffix: str
) -> None:
    peer = WebSocketPeer(opened.enter_context(open_tcp(daemon.port)))
    head = "\r\n".join([*upgrade_lines(), "Host: 127.0.0.1"]) + "\r\n\r\n"
    for byte in head.encode():
        peer.sock.sendall(bytes([byte]))
    while not peer._received.endswith(b"\r\n\r\n"):
        peer.read_some()
    assert peer._received.startswith(b"HTTP/1.1 101 ")
    peer._received.clear()
    peer.initialize(f"agent:alice{suffix}")


def test_a_unix_socket_speaks_web_socket_too(
    daemon: Daemon, opened: ExitStack, suffix: str
) -> None:
    peer = WebSocketPeer(opened.enter_context(open_unix(daemon.path)))
    head = "\r\n".join([*upgrade_lines(), "Host: localhost"]) + "\r\n\r\n"
    peer.sock.sendall(head.encode())
    while not peer._received.endswith(b"\r\n\r\n"):
        peer.read_some()
    peer._received.clear()
    peer.initialize(f"agent:alice{suffix}")


def test_the_client_of_another_library_is_a_peer_like_any_other(
    daemon: Daemon, suffix: str
) -> None:
    """An existing peer: `websockets` with its defaults, which offer compression."""
    with open_web_socket(f"ws://127.0.0.1:{daemon.port}/") as bus:

        def call(method: str, **params: object) -> object:
            bus.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
            return json.loads(bus.recv(timeout=10))["result"]

        call("initialize", clientId=f"tg:7{suffix}")
        assert call("subscribe", address=f"tg:8{suffix}") == {"success": True}
        bus.send(
            json.dumps(
                {
                    "jsonrpc": "2.0",
                    "id": 2,
                    "method": "sendMessage",
                    "params": {"to": f"tg:8{suffix}", "payload": {"text": "é" * 70_000}},
                }
            )
        )
        message = json.loads(bus.recv(timeout=10))
        assert message["params"]["payload"] == {"text": "é" * 70_000}
        bus.send(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"success": True}}))
        answer = json.loads(bus.recv(timeout=10))
        assert answer["result"]["acks"][0]["clientId"] == f"tg:7{suffix}"


def test_plain_asyncio_serves_every_transport() -> None:
    with open_daemon("asyncio") as daemon, ExitStack() as opened:
        peers = []
        for transport in TRANSPORTS:
            peer = connect(daemon, transport)
            opened.callback(peer.close)
            peer.initialize(f"agent:{transport}")
            peers.append(peer)
        for sender in peers:
            for transport, receiver in zip(TRANSPORTS, peers, strict=True):
                request_id = sender.send_message(f"agent:{transport}", {"n": 1})
                receiver.answer(receiver.next_message(), {"message": transport})
                (ack,) = sender.answer_to(request_id)["result"]["acks"]
                assert ack["message"] == transport


# How a connection ends


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_a_peer_that_will_say_no_more_still_gets_all_its_answers(
    join: Join, suffix: str
) -> None:
    alice, witness = join(f"agent:alice{suffix}"), join(f"agent:witness{suffix}")
    size = len(json.dumps(alice.call("rpc.discover")))
    number = 800_000 // size  # more than a socket takes, less than makes a peer busy
    request = '{"jsonrpc":"2.0","id":%d,"method":"rpc.discover"}\n'
    # In one go, for nobody reads the answers meanwhile.
    alice.sock.sendall("".join(request % index for index in range(number)).encode())
    alice.end()
    until_gone(f"agent:alice{suffix}", witness)
    answers = [alice.next_json() for _ in range(number)]
    assert [answer["id"] for answer in answers] == list(range(number))
    assert all("result" in answer for answer in answers)
    alice.expect_close()


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_a_peer_that_will_say_no_more_still_gets_the_acks_it_waits_for(
    join: Join, suffix: str
) -> None:
    alice, bob = join(f"agent:alice{suffix}"), join(f"agent:bob{suffix}")
    request_id = alice.send_message(f"agent:bob{suffix}")
    message = bob.next_message()
    alice.end()
    # It is no member any more: nothing that it could not answer is sent to it.
    until_gone(f"agent:alice{suffix}", bob)
    assert bob.call("sendMessage", {"to": f"agent:alice{suffix}", "payload": {}})["acks"] == []
    bob.answer(message, {"message": "done"})
    assert alice.answer_to(request_id)["result"]["acks"][0]["message"] == "done"
    alice.expect_close()


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_one_who_asks_and_hangs_up_in_one_go_is_answered(
    open_peer: Callable[[], Peer], suffix: str
) -> None:
    peer = open_peer()
    peer.sock.sendall(
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"clientId":"x%s"}}\n'
        b'{"jsonrpc":"2.0","id":2,"method":"ping"}\n' % suffix.encode()
    )
    peer.end()
    assert [peer.next_json()["id"] for _ in range(2)] == [1, 2]
    peer.expect_close()


def test_connections_that_are_reset_leave_nothing_behind(
    join: Join, transport: Transport, suffix: str
) -> None:
    witness = join(f"agent:witness{suffix}")
    for index in range(20):
        peer = join(f"agent:peer{index}{suffix}")
        peer.call("subscribe", {"address": f"tg:{index}{suffix}"})
        request_id = witness.send_message(f"tg:{index}{suffix}", {"text": "x" * 100_000})
        witness.expect_nothing()
        if transport != "unix":
            peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.sock.close()  # with unread bytes, and without a word
        (ack,) = witness.answer_to(request_id)["result"]["acks"]
        assert ack["message"] == "peer left before it answered"
    names = [each["clientId"] for each in status_of(witness)]
    assert [name for name in names if name.endswith(suffix)] == [f"agent:witness{suffix}"]


SMALL = {"wire.max_queue_bytes": 65_536, "wire.max_unread_bytes": 1_048_576}


@pytest.fixture
def join_small(
    daemon_with: DaemonWith, transport: Transport, opened: ExitStack, suffix: str
) -> Join:
    """Open connections to a bus that keeps little for those who do not read."""

    def join_as(name: str) -> Peer:
        peer = connect(daemon_with(SMALL), transport)
        opened.callback(peer.close)
        peer.initialize(name + suffix)
        return peer

    return join_as


def test_a_peer_that_is_closed_for_not_reading_hears_the_end(
    join_small: Join, suffix: str
) -> None:
    alice, bob = join_small("agent:alice"), join_small("agent:bob")
    for _ in range(60):
        alice.send_message(f"agent:bob{suffix}")
    for index in range(60):
        bob.answer(bob.next_message(), {"payload": {"text": "x" * 100_000}})
        bob.call("ping")
        if index == 9:
            alice.request("ping")  # it is busy by now: nobody reads this any more
    until_gone(f"agent:alice{suffix}", bob)
    with pytest.raises(Closed):  # first what the kernel kept, then the end
        while True:
            alice.read_frame()


def test_a_peer_that_gets_too_much_at_once_is_closed_and_nobody_else(
    daemon_with: DaemonWith, transport: Transport, opened: ExitStack, suffix: str
) -> None:
    daemon = daemon_with({"wire.max_queue_bytes": 65_536, "wire.max_unread_bytes": 65_536})
    alice, bob = connect(daemon, transport), connect(daemon, transport)
    for name, peer in (("alice", alice), ("bob", bob)):
        opened.callback(peer.close)
        peer.initialize(f"agent:{name}{suffix}")
    # More than any socket takes: what is left over is too much in the very moment of sending.
    for _ in range(20):
        alice.send_message(f"agent:bob{suffix}")
    for _ in range(20):
        bob.answer(bob.next_message(), {"payload": {"text": "x" * 900_000}})
    until_gone(f"agent:alice{suffix}", bob)
    with pytest.raises(Closed):
        while True:
            alice.read_frame()


def test_a_web_socket_that_answers_pings_lives_and_one_that_does_not_is_closed(
    daemon_with: DaemonWith, opened: ExitStack, suffix: str
) -> None:
    daemon = daemon_with({"wire.ping_seconds": 0.2})
    silent = connect(daemon, "ws")
    lively = connect(daemon, "ws")
    assert isinstance(silent, WebSocketPeer)
    for name, peer in (("silent", silent), ("lively", lively)):
        opened.callback(peer.close)
        peer.initialize(f"agent:{name}{suffix}")
    pings = 0
    with pytest.raises(Closed):
        while True:
            assert silent.read_any_frame() == (True, PING, b"busd")
            pings += 1
            lively.expect_nothing()  # reads, and so answers, the ping that it got, too
    assert pings
    lively.expect_nothing()
    names = [each["clientId"] for each in status_of(lively)]
    assert f"agent:lively{suffix}" in names
    assert f"agent:silent{suffix}" not in names


def test_lines_are_not_pinged(
    daemon_with: DaemonWith, opened: ExitStack, suffix: str
) -> None:
    daemon = daemon_with({"wire.ping_seconds": 0.2})
    web, line = connect(daemon, "ws"), connect(daemon, "tcp")
    assert isinstance(web, WebSocketPeer)
    for name, peer in (("web", web), ("line", line)):
        opened.callback(peer.close)
        peer.initialize(f"agent:{name}{suffix}")
    with pytest.raises(Closed):  # for never answering
        while True:
            web.read_any_frame()
    line.expect_nothing()


# Help


def status_of(peer: Peer) -> list[dict[str, object]]:
    connections: list[dict[str, object]] = peer.call("getStatus")["connections"]
    return connections


def until_gone(name: str, witness: Peer) -> None:
    """Ask the bus who is there until this one is not."""
    for _ in range(10_000):
        if name not in [each["clientId"] for each in status_of(witness)]:
            return
    raise AssertionError(f"{name} is still there")
