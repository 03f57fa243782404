"""How a connection ends, on real sockets: hung up, half closed, reset, not read, not answered."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.conftest import DaemonWith, Join
from tests.wire_peers import (
    PING,
    Closed,
    Peer,
    Transport,
    WebSocketPeer,
    connect,
    read_to_end,
    status_of,
    until_gone,
)


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_a_peer_that_will_say_no_more_still_gets_all_its_answers(join: Join, suffix: str) -> None:
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


def test_a_peer_that_is_closed_for_not_reading_hears_the_end(join_small: Join, suffix: str) -> None:
    alice, bob = join_small("agent:alice"), join_small("agent:bob")
    for _ in range(60):
        alice.send_message(f"agent:bob{suffix}")
    for index in range(60):
        bob.answer(bob.next_message(), {"payload": {"text": "x" * 100_000}})
        bob.call("ping")
        if index == 9:
            alice.request("ping")  # it is busy by now: nobody reads this any more
    until_gone(f"agent:alice{suffix}", bob)
    read_to_end(alice)  # first what the kernel kept


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
    read_to_end(alice)


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
    try:
        while True:
            assert silent.read_any_frame() == (True, PING, b"busd")
            pings += 1
            lively.expect_nothing()  # reads, and so answers, the ping that it got, too
    except Closed:
        assert pings
    lively.expect_nothing()
    names = [each["clientId"] for each in status_of(lively)]
    assert f"agent:lively{suffix}" in names
    assert f"agent:silent{suffix}" not in names


def test_lines_are_not_pinged(daemon_with: DaemonWith, opened: ExitStack, suffix: str) -> None:
    daemon = daemon_with({"wire.ping_seconds": 0.2})
    web, line = connect(daemon, "ws"), connect(daemon, "tcp")
    assert isinstance(web, WebSocketPeer)
    for name, peer in (("web", web), ("line", line)):
        opened.callback(peer.close)
        peer.initialize(f"agent:{name}{suffix}")
    try:
        while True:
            web.read_any_frame()
    except Closed:  # for never answering
        line.expect_nothing()
