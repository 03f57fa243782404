"""Half a frame, one byte at a time, never reading."""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.bad_input.pressure import MIB, bounded_memory, flood
from tests.conftest import DaemonWith, Join
from tests.daemons import PATIENCE_SECONDS, Daemon
from tests.wire_peers import (
    TEXT,
    LinePeer,
    Peer,
    Transport,
    encode_frame,
    join_by,
    join_web_socket,
    open_tcp,
    read_to_end,
)

QUICK = {"wire.first_request_seconds": 0.5}


def test_half_a_frame_and_then_silence_holds_nobody_up(
    daemon: Daemon, witness: Peer, opened: ExitStack, suffix: str
) -> None:
    alice = join_by(daemon, "tcp", f"agent:alice{suffix}", opened)
    alice.sock.sendall(b'{"jsonrpc":"2.0","id":1,"me')
    witness.expect_nothing()
    alice.sock.sendall(b'thod":"unsubscribe","params":{"address":"x"}}\n')
    assert alice.next_json()["error"]["code"] == -32003


def test_half_a_web_socket_frame_and_then_silence_holds_nobody_up(
    daemon: Daemon, witness: Peer, opened: ExitStack, suffix: str
) -> None:
    alice = join_web_socket(daemon, f"agent:alice{suffix}", opened)
    frame = encode_frame(TEXT, b'{"jsonrpc":"2.0","id":1,"method":"no"}')
    for part in (frame[:1], frame[1:5], frame[5:20]):
        alice.sock.sendall(part)
        witness.expect_nothing()
    alice.sock.sendall(frame[20:])
    assert alice.next_json()["error"]["code"] == -32601


def test_half_a_frame_of_a_stranger_and_then_silence_is_closed_in_time(
    daemon_with: DaemonWith, opened: ExitStack
) -> None:
    peer = LinePeer(opened.enter_context(open_tcp(daemon_with(QUICK).port)))
    peer.sock.sendall(b'{"jsonrpc":"2.0","id":1,"me')
    peer.expect_close()


@pytest.mark.parametrize("text", [b'{"jsonrpc":"2.0"', b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_one_byte_at_a_time_does_not_win_time(
    daemon_with: DaemonWith, opened: ExitStack, text: bytes
) -> None:
    sock = opened.enter_context(open_tcp(daemon_with(QUICK).port))
    for byte in endless(text):
        # Wait for the end a little before the next byte; it must come while bytes still do.
        readable, _, _ = select.select([sock], [], [], 0.02)
        if readable:
            break
        sock.send(byte)
    LinePeer(sock).expect_close()


def test_a_peer_that_never_reads_is_busy_and_loses_nothing_that_was_accepted(
    daemon: Daemon, alice: Peer, witness: Peer, join: Join, suffix: str
) -> None:
    lazy = join(f"agent:lazy{suffix}")
    text = "x" * 65_536
    waiting: list[int] = []
    with bounded_memory(daemon, 32 * MIB):
        while True:
            request_id = alice.send_message(f"agent:lazy{suffix}", {"text": text})
            alice.call("ping")
            if alice.waiting:
                break
            waiting.append(request_id)
            assert len(waiting) < 200, "nobody said that it is busy"
        (ack,) = alice.answer_to(request_id)["result"]["acks"]
        assert ack == {
            "success": False,
            "message": "peer is busy",
            "outcome": "busy",
            "payload": {},
            "shouldRetry": True,
            "retrySeconds": 1.0,
            "clientId": f"agent:lazy{suffix}",
        }
        witness.expect_nothing()
    for _ in waiting:
        lazy.answer(lazy.next_message(), {})
    answers = [alice.next_json() for _ in waiting]
    assert [answer["id"] for answer in answers] == waiting
    assert all(answer["result"]["acks"][0]["success"] for answer in answers)
    lazy.expect_nothing()


def test_a_peer_that_never_reads_is_closed_when_too_much_waits_for_it(
    daemon_with: DaemonWith, transport: Transport, opened: ExitStack, suffix: str
) -> None:
    # A peer's own answers are not refused like messages are; they have a bound of their own.
    daemon = daemon_with({"wire.max_queue_bytes": 65_536, "wire.max_unread_bytes": MIB})
    alice = join_by(daemon, transport, f"agent:alice{suffix}", opened)
    bob = join_by(daemon, transport, f"agent:bob{suffix}", opened)
    witness = join_by(daemon, transport, f"agent:witness{suffix}", opened)
    for _ in range(100):
        alice.send_message(f"agent:bob{suffix}")
    for _ in range(100):
        bob.answer(bob.next_message(), {"payload": {"text": "x" * 65_536}})
    bob.expect_nothing()
    # Alice has not read anything yet; only what the kernel kept for her is left, and the end.
    read_to_end(alice)
    names = [each["clientId"] for each in witness.call("getStatus")["connections"]]
    assert f"agent:alice{suffix}" not in names


def test_a_peer_that_floods_requests_and_reads_no_answers_holds_nobody_up(
    daemon: Daemon, witness: Peer, opened: ExitStack, suffix: str
) -> None:
    alice = join_by(daemon, "unix", f"agent:alice{suffix}", opened)
    request = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    with bounded_memory(daemon, 32 * MIB):
        sent = flood(alice.sock, request * 1000)
        witness.expect_nothing()
    alice.sock.settimeout(PATIENCE_SECONDS)
    answered = 0
    while answered < sent // len(request):
        assert alice.next_json()["id"] == 1
        answered += 1
    alice.sock.sendall(request[sent % len(request) :])  # the one that was cut
    alice.next_json()
    alice.expect_nothing()


def endless(text: bytes) -> Iterator[bytes]:
    yield from (text[index : index + 1] for index in range(len(text)))
    while True:
        yield b"x"
