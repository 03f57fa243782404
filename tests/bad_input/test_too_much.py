"""Too deep, too many, too long."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.bad_input.expected import too_long, unparsable
from tests.bad_input.pressure import MIB, bounded_memory, flood, pour
from tests.daemons import Daemon
from tests.wire_peers import CONTINUATION, TEXT, Peer, WebSocketPeer, encode_frame, join_by


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 9])
def test_nesting_of_100_000_levels_gets_a_parse_error(
    alice: Peer, witness: Peer, text: bytes
) -> None:
    alice.send_bytes(text)
    assert alice.next_json() == unparsable("nested too deeply")
    alice.expect_nothing()
    witness.expect_nothing()


def test_a_payload_nested_100_000_levels_gets_a_parse_error_and_goes_nowhere(
    alice: Peer, witness: Peer, suffix: str
) -> None:
    nested = b"[" * 100_000 + b"]" * 100_000
    alice.send_bytes(
        b'{"jsonrpc":"2.0","id":1,"method":"sendMessage","params":{"to":"agent:witness%s",'
        b'"payload":{"a":%s}}}' % (suffix.encode(), nested)
    )
    assert alice.next_json() == unparsable("nested too deeply")
    alice.expect_nothing()
    witness.expect_nothing()


def test_an_answer_nested_100_000_levels_is_a_parse_error_and_leaves_the_call_open(
    alice: Peer, witness: Peer, suffix: str
) -> None:
    request_id = alice.send_message(f"agent:witness{suffix}")
    message = witness.next_message()
    nested = b"[" * 100_000 + b"]" * 100_000
    witness.send_bytes(b'{"jsonrpc":"2.0","id":%d,"result":{"a":%s}}' % (message["id"], nested))
    assert witness.next_json() == unparsable("nested too deeply")
    witness.answer(message, {"message": "shallow"})
    (ack,) = alice.answer_to(request_id)["result"]["acks"]
    assert ack["message"] == "shallow"


def test_a_batch_of_half_a_million_elements_is_refused_as_one(
    daemon: Daemon, alice: Peer, witness: Peer
) -> None:
    with bounded_memory(daemon, 64 * MIB):
        alice.send_bytes(b"[" + b",".join([b"1"] * 500_000) + b"]")
        witness.expect_nothing()
        answer = alice.next_json()
    assert isinstance(answer, dict)
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)
    alice.expect_nothing()


def test_a_flood_of_junk_frames_holds_nobody_up(
    daemon: Daemon, witness: Peer, opened: ExitStack, suffix: str
) -> None:
    alice = join_by(daemon, "unix", f"agent:alice{suffix}", opened)
    with bounded_memory(daemon, 64 * MIB):
        flood(alice.sock, b"1\n" * 100_000)
        witness.expect_nothing()
    alice.close()
    witness.expect_nothing()


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_a_line_of_one_gibibyte_gets_one_error_and_the_end(
    daemon: Daemon, alice: Peer, witness: Peer
) -> None:
    with bounded_memory(daemon, 16 * MIB):
        pour(alice.sock, b"x" * MIB, 1024)
        witness.expect_nothing()
        assert alice.next_json() == too_long(MIB)
        alice.expect_close()


@pytest.mark.parametrize("transport", ["ws"])
def test_a_web_socket_frame_of_one_gibibyte_gets_one_error_and_the_end(
    daemon: Daemon, alice: Peer, witness: Peer
) -> None:
    with bounded_memory(daemon, 16 * MIB):
        alice.sock.sendall(struct.pack("!BBQ", 0x80 | TEXT, 0xFF, 1024 * MIB) + bytes(4))
        pour(alice.sock, b"x" * MIB, 1024)
        witness.expect_nothing()
        assert alice.next_json() == too_long(MIB)
        assert alice.expect_close() == 1009


@pytest.mark.parametrize("transport", ["ws"])
def test_a_web_socket_message_of_one_gibibyte_in_fragments_gets_one_error_and_the_end(
    daemon: Daemon, alice: Peer, witness: Peer
) -> None:
    with bounded_memory(daemon, 16 * MIB):
        alice.sock.sendall(encode_frame(TEXT, b"x", fin=False))
        pour(alice.sock, encode_frame(CONTINUATION, b"x" * (MIB // 4), fin=False), 4096)
        witness.expect_nothing()
        assert alice.next_json() == too_long(MIB)
        assert alice.expect_close() == 1009


def test_a_frame_over_the_limit_is_refused_and_one_at_the_limit_is_not(
    alice: Peer, suffix: str
) -> None:
    def request_of(size: int) -> bytes:
        start = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"'
        return start + b"x" * (size - len(start) - 3) + b'"}}'

    alice.send_bytes(request_of(MIB))
    assert alice.next_json()["id"] == 1
    alice.send_bytes(request_of(MIB + 1))
    assert alice.next_json() == too_long(MIB)
    alice.expect_close()


def test_a_stranger_gets_less_room_than_a_member(open_peer: Callable[[], Peer]) -> None:
    stranger = open_peer()
    stranger.send_bytes(b'{"x":"' + b"x" * 65_536 + b'"}')
    assert stranger.next_json() == too_long(65_536)
    stranger.expect_close()


def test_a_large_frame_right_behind_initialize_is_within_the_limit_of_a_member(
    open_peer: Callable[[], Peer], suffix: str
) -> None:
    peer = open_peer()
    hello = {"clientId": f"agent:alice{suffix}"}
    frames = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "id": 2, "method": "ping", "params": {"x": "x" * 100_000}},
    ]
    texts = [json.dumps(frame).encode() for frame in frames]
    # All in one go, so that the bus judges the second before it has carried out the first.
    if isinstance(peer, WebSocketPeer):
        peer.sock.sendall(b"".join(encode_frame(TEXT, text) for text in texts))
    else:
        peer.sock.sendall(b"\n".join([*texts, b""]))
    assert [peer.next_json()["id"] for _ in frames] == [1, 2]
