"""Frames that are no text, no whole, or no WebSocket."""

from __future__ import annotations

import struct
import zlib

from tests.bad_input.expected import error
from tests.bad_input.pressure import MIB, bounded_memory
from tests.daemons import Daemon
from tests.wire_peers import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Peer,
    WebSocketPeer,
    encode_frame,
    upgrade_lines,
)


def test_a_binary_frame_gets_an_error_and_close_1003(talker: WebSocketPeer) -> None:
    talker.send_frame(BINARY, b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    expected = error(-32600, "binary frame: the bus speaks text frames", rule="text_frames")
    assert talker.next_json() == expected
    assert talker.expect_close() == 1003


def test_a_message_in_one_byte_fragments_is_one_message(talker: WebSocketPeer) -> None:
    text = b'{"jsonrpc":"2.0","id":"\xc3\xa9","method":"no"}'
    talker.send_frame(TEXT, b"", fin=False)
    for index in range(len(text)):
        talker.send_frame(CONTINUATION, text[index : index + 1], fin=False)
        talker.send_frame(PING, b"")
        assert talker.read_any_frame() == (True, PONG, b"")
    talker.send_frame(CONTINUATION, b"")
    assert talker.next_json()["id"] == "é"
    talker.expect_nothing()


def test_a_hundred_thousand_empty_fragments_are_one_message_and_little_memory(
    daemon: Daemon, talker: WebSocketPeer, witness: Peer
) -> None:
    empty = encode_frame(CONTINUATION, b"", fin=False)
    with bounded_memory(daemon, 32 * MIB):
        talker.send_frame(TEXT, b'{"jsonrpc":"2.0",', fin=False)
        for _ in range(100):
            talker.sock.sendall(empty * 1000)
        witness.expect_nothing()
        talker.send_frame(CONTINUATION, b'"id":1,"method":"no"}')
        assert talker.next_json()["id"] == 1


def test_compression_is_not_negotiated(browser: WebSocketPeer, suffix: str) -> None:
    offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"
    head = "\r\n".join([*upgrade_lines(offer), "Host: 127.0.0.1"])
    browser.sock.sendall(head.encode() + b"\r\n\r\n")
    while b"\r\n\r\n" not in browser.received:
        browser.read_some()
    assert browser.received.startswith(b"HTTP/1.1 101 ")
    assert b"extensions" not in browser.received.lower()


def test_a_compressed_bomb_gets_an_error_and_close_1002(
    daemon: Daemon, talker: WebSocketPeer
) -> None:
    bomb = zlib.compress(bytes(64 * MIB), wbits=-15)
    with bounded_memory(daemon, 16 * MIB):
        talker.send_frame(TEXT, bomb, reserved=0b100)
        assert talker.next_json() == error(
            -32600, "not WebSocket: reserved bits must be 0", rule="websocket"
        )
        assert talker.expect_close() == 1002


def test_an_unmasked_frame_gets_an_error_and_close_1002(talker: WebSocketPeer) -> None:
    talker.sock.sendall(struct.pack("!BB", 0x80 | TEXT, 2) + b"{}")
    expected = error(-32600, "not WebSocket: incorrect masking", rule="websocket")
    assert talker.next_json() == expected
    assert talker.expect_close() == 1002


def test_a_fragment_of_nothing_gets_an_error_and_close_1002(talker: WebSocketPeer) -> None:
    talker.send_frame(CONTINUATION, b"{}")
    expected = error(-32600, "not WebSocket: unexpected continuation frame", rule="websocket")
    assert talker.next_json() == expected
    assert talker.expect_close() == 1002


def test_a_message_within_a_message_gets_an_error_and_close_1002(talker: WebSocketPeer) -> None:
    talker.send_frame(TEXT, b"{", fin=False)
    talker.send_frame(TEXT, b"}")
    expected = error(-32600, "not WebSocket: expected a continuation frame", rule="websocket")
    assert talker.next_json() == expected
    assert talker.expect_close() == 1002


def test_requests_before_a_bad_frame_are_answered(talker: WebSocketPeer) -> None:
    good = encode_frame(TEXT, b'{"jsonrpc":"2.0","id":1,"method":"no"}')
    talker.sock.sendall(good + good + encode_frame(BINARY, b""))
    assert [talker.next_json()["id"] for _ in range(3)] == [1, 1, None]
    assert talker.expect_close() == 1003


def test_requests_before_what_is_no_frame_are_answered(talker: WebSocketPeer) -> None:
    good = encode_frame(TEXT, b'{"jsonrpc":"2.0","id":1,"method":"no"}')
    unmasked = struct.pack("!BB", 0x80 | TEXT, 2) + b"{}"
    talker.sock.sendall(good + good + unmasked)
    assert [talker.next_json()["id"] for _ in range(3)] == [1, 1, None]
    assert talker.expect_close() == 1002


def test_the_last_word_is_the_close_frame_however_the_request_before_it_came(
    talker: WebSocketPeer,
) -> None:
    talker.sock.sendall(
        encode_frame(TEXT, b'{"jsonrpc":"2.0","id":1,', fin=False)
        + encode_frame(CONTINUATION, b'"method":"ping"}')
        + struct.pack("!BB", 0x80 | TEXT, 2)
        + b"{}"
    )
    assert [talker.next_json()["id"] for _ in range(2)] == [1, None]
    assert talker.expect_close() == 1002


def test_a_web_socket_that_says_goodbye_is_answered_goodbye(talker: WebSocketPeer) -> None:
    talker.send_frame(CLOSE, struct.pack("!H", 1000))
    assert talker.expect_close() == 1000


def test_a_web_socket_frame_may_be_cut_anywhere(talker: WebSocketPeer, witness: Peer) -> None:
    # Masked so that what follows the header looks like the beginning of a frame, too.
    text = b'{"jsonrpc":"2.0","id":1,"method":"no"}'
    disguise = bytes([0x80 | TEXT, 0x80 | 4, 0, 0])
    mask = bytes(one ^ other for one, other in zip(text, disguise, strict=False))
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(text))
    frame = bytes([0x80 | TEXT, 0x80 | len(text)]) + mask + masked
    for at in range(1, len(frame)):
        talker.sock.sendall(frame[:at])
        witness.expect_nothing()  # so that the bus has read the one half before the other
        talker.sock.sendall(frame[at:])
        assert talker.next_json()["id"] == 1
    talker.expect_nothing()
