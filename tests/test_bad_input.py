"""Bad input, and what it gets: the exact answer, while every other peer keeps being served."""

from __future__ import annotations

import json
import resource
import select
import socket
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.conftest import DaemonWith, Join
from tests.daemons import PATIENCE_SECONDS, Daemon, Loop, open_daemon
from tests.wire_peers import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    Closed,
    Json,
    LinePeer,
    Peer,
    Transport,
    WebSocketPeer,
    connect,
    encode_frame,
    open_http,
    open_tcp,
    open_unix,
    upgrade_lines,
)

MIB = 1024 * 1024
CONTINUATION = 0
QUICK = {"wire.first_request_seconds": 0.5}


def error(code: int, message: str, request_id: Json = None, **data: Json) -> Json:
    """Give the error reply that is expected."""
    body = {"code": code, "message": message, "data": data}
    return {"jsonrpc": "2.0", "id": request_id, "error": body}


def invalid(detail: str) -> Json:
    return error(-32600, "Invalid request", rule="json-rpc", detail=detail)


def unparsable(detail: str) -> Json:
    return error(-32700, "Parse error", rule="json", detail=detail)


def too_long(limit: int) -> Json:
    return error(-32600, f"frame over {limit} bytes", rule="max_frame_bytes")


@contextmanager
def bounded_memory(daemon: Daemon, growth_bytes: int) -> Iterator[None]:
    """Make sure that the daemon never holds this much more than at the beginning."""
    daemon.forget_peak()
    before = daemon.peak_bytes()
    yield
    growth = daemon.peak_bytes() - before
    assert growth < growth_bytes, f"{growth / MIB:.0f} MiB more than before"


@pytest.fixture
def alice(join: Join, suffix: str) -> Peer:
    """The peer that misbehaves."""
    return join(f"agent:alice{suffix}")


@pytest.fixture
def witness(daemon: Daemon, opened: ExitStack, suffix: str) -> Peer:
    """Another peer, to see that it is served meanwhile."""
    return join_by(daemon, "unix", f"agent:witness{suffix}", opened)


def join_by(daemon: Daemon, transport: Transport, name: str, opened: ExitStack) -> Peer:
    peer = connect(daemon, transport)
    opened.callback(peer.close)
    peer.initialize(name)
    return peer


def join_web_socket(daemon: Daemon, name: str, opened: ExitStack) -> WebSocketPeer:
    peer = join_by(daemon, "ws", name, opened)
    assert isinstance(peer, WebSocketPeer)
    return peer


# What is no JSON, or no JSON-RPC


@pytest.mark.parametrize("text", [b"hello", b"{", b'"', b"{'id': 1}", b"\x00", b"{}{}", b"nul"])
def test_what_is_not_json_gets_a_parse_error(alice: Peer, text: bytes) -> None:
    alice.send_bytes(text)
    answer = alice.next_json()
    assert answer == unparsable(answer["error"]["data"]["detail"])
    alice.expect_nothing()


def test_invalid_utf8_gets_a_parse_error(alice: Peer) -> None:
    alice.send_bytes(b'{"jsonrpc":"2.0","id":1,"method":"\xff"}')
    assert alice.next_json() == unparsable("not UTF-8 (byte 34)")
    alice.expect_nothing()


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
def test_invalid_utf8_in_a_payload_gets_a_parse_error_and_goes_nowhere(
    alice: Peer, witness: Peer, suffix: str, bad: bytes
) -> None:
    start = b'{"jsonrpc":"2.0","id":1,"method":"sendMessage","params":{"to":"agent:witness'
    start += suffix.encode() + b'","payload":{"text":"'
    alice.send_bytes(start + bad + b'"}}}')
    assert alice.next_json() == unparsable(f"not UTF-8 (byte {len(start)})")
    alice.expect_nothing()
    witness.expect_nothing()


def test_a_byte_order_mark_gets_a_parse_error(alice: Peer) -> None:
    alice.send_bytes(b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}')
    answer = alice.next_json()
    assert answer == unparsable(answer["error"]["data"]["detail"])
    alice.expect_nothing()


def test_an_empty_batch_is_no_request(alice: Peer) -> None:
    alice.send_bytes(b"[]")
    assert alice.next_json() == invalid("an empty batch")
    alice.expect_nothing()


def test_an_id_alone_is_no_request(alice: Peer) -> None:
    alice.send_bytes(b'{"id":1}')
    assert alice.next_json() == invalid("The request failed schema validation")
    alice.expect_nothing()


@pytest.mark.parametrize("version", ['"1.0"', "2.0", "null", "2", '"2"', "[]", '"2.0 "'])
@pytest.mark.parametrize("method", ["ping", "sendMessage"])
def test_a_wrong_jsonrpc_is_no_request(alice: Peer, version: str, method: str) -> None:
    params = '{"to":"tg:1","payload":{}}'
    alice.send_bytes(
        f'{{"jsonrpc":{version},"id":1,"method":"{method}","params":{params}}}'.encode()
    )
    assert alice.next_json() == invalid("The request failed schema validation")
    alice.expect_nothing()


@pytest.mark.parametrize("method", ["ping", "sendMessage"])
def test_a_missing_jsonrpc_is_no_request(alice: Peer, method: str) -> None:
    alice.send_json({"id": 1, "method": method, "params": {"to": "tg:1", "payload": {}}})
    assert alice.next_json() == invalid("The request failed schema validation")
    alice.expect_nothing()


@pytest.mark.parametrize("text", ["1", "null", "true", '"ping"', "1.5"])
def test_json_that_is_no_object_is_no_request(alice: Peer, text: str) -> None:
    kinds = {"1": "int", "null": "null", "true": "bool", '"ping"': "str", "1.5": "float"}
    alice.send_bytes(text.encode())
    assert alice.next_json() == invalid(f"Expected `object`, got `{kinds[text]}`")
    alice.expect_nothing()


@pytest.mark.parametrize("request_id", [True, [1], {"a": 1}])
def test_an_id_that_cannot_be_one_is_no_request(alice: Peer, request_id: Json) -> None:
    alice.request("ping", id=request_id)
    kind = {bool: "bool", list: "array", dict: "object"}[type(request_id)]
    expected = f"Expected `int | float | str | null`, got `{kind}` - at `$.id`"
    assert alice.next_json() == invalid(expected)
    alice.expect_nothing()


@pytest.mark.parametrize("params", ["text", 7, True, None])
def test_params_that_are_neither_object_nor_array_are_no_request(
    alice: Peer, params: Json
) -> None:
    alice.send_json({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": params})
    assert alice.next_json() == invalid("The request failed schema validation")
    alice.expect_nothing()


@pytest.mark.parametrize("method", ["ping", "subscribe", "sendMessage", "getStatus"])
def test_positional_params_are_refused(alice: Peer, method: str) -> None:
    request_id = alice.request(method, ["tg:1"])
    expected = f"{method}: Expected `object`, got `array`"
    assert alice.next_json() == error(-32602, expected, request_id, rule="params")
    alice.expect_nothing()


@pytest.mark.parametrize("method", ["", "nothing", "Ping", "__init__", "rpc.", "processMessage"])
def test_an_unknown_method_is_refused(alice: Peer, method: str) -> None:
    request_id = alice.request(method)
    expected = error(-32601, "Method not found", request_id, rule="method", detail=method)
    assert alice.next_json() == expected
    alice.expect_nothing()


@pytest.mark.parametrize("member", ["from", "to", "messageId"])
@pytest.mark.parametrize("value", [7, None, ["tg:1"], {"tg": 1}, True])
def test_a_member_of_the_wrong_type_is_refused(alice: Peer, member: str, value: Json) -> None:
    request_id = alice.request("sendMessage", {"to": "tg:1", "payload": {}} | {member: value})
    kinds = {int: "int", type(None): "null", list: "array", dict: "object", bool: "bool"}
    expected = f"sendMessage: Expected `str`, got `{kinds[type(value)]}` - at `$.{member}`"
    assert alice.next_json() == error(-32602, expected, request_id, rule="params")
    alice.expect_nothing()


@pytest.mark.parametrize("payload", ["text", 7, None, [{}], True])
def test_a_payload_that_is_no_object_is_refused(alice: Peer, payload: Json) -> None:
    request_id = alice.request("sendMessage", {"to": "tg:1", "payload": payload})
    expected = "sendMessage: payload must be an object"
    assert alice.next_json() == error(-32602, expected, request_id, rule="params", member="payload")
    alice.expect_nothing()


@pytest.mark.parametrize("missing", ["to", "payload"])
def test_a_missing_member_is_refused(alice: Peer, missing: str) -> None:
    params = {"to": "tg:1", "payload": {}}
    del params[missing]
    request_id = alice.request("sendMessage", params)
    expected = f"sendMessage: Object missing required field `{missing}`"
    assert alice.next_json() == error(-32602, expected, request_id, rule="params")
    alice.expect_nothing()


# Replies and ids


def test_a_reply_nobody_asked_for_is_passed_over(alice: Peer) -> None:
    for call_id in (0, 1, -1, 10**30, 1.5, "1", None):
        alice.send_json({"jsonrpc": "2.0", "id": call_id, "result": {"success": True}})
        alice.send_json({"jsonrpc": "2.0", "id": call_id, "error": {"code": 1, "message": "no"}})
    alice.send_json({"jsonrpc": "2.0", "result": {"success": True}})
    alice.send_json([{"jsonrpc": "2.0", "id": 1, "result": {}}])
    alice.expect_nothing()


def test_a_reply_to_the_call_of_another_peer_is_passed_over(
    alice: Peer, witness: Peer, join: Join, suffix: str
) -> None:
    mallory = join(f"agent:mallory{suffix}")
    request_id = alice.send_message(f"agent:witness{suffix}")
    message = witness.next_message()
    mallory.answer(message, {"success": True, "message": "forged"})
    mallory.send_json({"jsonrpc": "2.0", "id": message["id"], "error": {"code": 1}})
    mallory.expect_nothing()
    witness.answer(message, {"message": "real"})
    answer = alice.answer_to(request_id)
    assert [ack["message"] for ack in answer["result"]["acks"]] == ["real"]


def test_one_addressee_of_a_fan_out_cannot_answer_for_another(
    alice: Peer, join: Join, suffix: str
) -> None:
    bob, mallory = join(f"agent:bob{suffix}"), join(f"agent:mallory{suffix}")
    for peer in (bob, mallory):
        peer.call("subscribe", {"address": f"tg:1{suffix}"})
    request_id = alice.send_message(f"tg:1{suffix}")
    to_bob, to_mallory = bob.next_message(), mallory.next_message()
    mallory.answer(to_mallory, {"message": "mine"})
    mallory.answer(to_bob, {"message": "forged"})
    mallory.expect_nothing()
    alice.expect_nothing()
    bob.answer(to_bob, {"message": "real"})
    acks = alice.answer_to(request_id)["result"]["acks"]
    assert {ack["clientId"]: ack["message"] for ack in acks} == {
        f"agent:bob{suffix}": "real",
        f"agent:mallory{suffix}": "mine",
    }


def test_requests_with_the_same_id_are_all_answered(
    alice: Peer, witness: Peer, suffix: str
) -> None:
    for message_id in ("one", "two"):
        params = {"to": f"agent:witness{suffix}", "messageId": message_id, "payload": {}}
        alice.request("sendMessage", params, id=7)
    alice.request("unsubscribe", {"address": "tg:1"}, id=7)
    first, second = witness.next_message(), witness.next_message()
    witness.answer(second, {})
    witness.answer(first, {})
    answers = [alice.next_json() for _ in range(3)]
    assert [answer["id"] for answer in answers] == [7, 7, 7]
    assert answers[0]["error"]["code"] == -32003
    assert [answer["result"]["messageId"] for answer in answers[1:]] == ["two", "one"]
    alice.expect_nothing()


def test_a_second_answer_to_the_same_message_is_passed_over(
    alice: Peer, witness: Peer, suffix: str
) -> None:
    request_id = alice.send_message(f"agent:witness{suffix}")
    message = witness.next_message()
    witness.answer(message, {"message": "first"})
    witness.answer(message, {"message": "second"})
    witness.send_json({"jsonrpc": "2.0", "id": message["id"], "error": {"code": 1}})
    witness.expect_nothing()
    acks = alice.answer_to(request_id)["result"]["acks"]
    assert [ack["message"] for ack in acks] == ["first"]
    alice.expect_nothing()


def test_a_peer_that_never_answers_is_a_failed_ack_when_its_time_is_up(
    daemon_with: DaemonWith, transport: Transport, opened: ExitStack, suffix: str
) -> None:
    daemon = daemon_with({"delivery.ack_seconds": 0.3})
    alice = join_by(daemon, transport, f"agent:alice{suffix}", opened)
    silent = join_by(daemon, transport, f"agent:silent{suffix}", opened)
    request_id = alice.send_message(f"agent:silent{suffix}", messageId="m")
    silent.next_message()
    ack = {
        "success": False,
        "message": "no answer in time",
        "payload": {},
        "clientId": f"agent:silent{suffix}",
    }
    result = {"accepted": True, "messageId": "m", "acks": [ack]}
    assert alice.next_json() == {"jsonrpc": "2.0", "id": request_id, "result": result}
    silent.expect_nothing()


def test_an_answer_with_absurd_numbers_is_carried_and_harms_nobody(
    alice: Peer, witness: Peer, suffix: str
) -> None:
    request_id = 10**40
    alice.request("sendMessage", {"to": f"agent:witness{suffix}", "payload": {}}, id=request_id)
    message = witness.next_message()
    huge = b"9" * 40
    witness.send_bytes(
        b'{"jsonrpc":"2.0","id":%d,"result":{"retrySeconds":%s,"payload":{"n":1e999}}}'
        % (message["id"], huge)
    )
    witness.expect_nothing()
    (ack,) = alice.answer_to(request_id)["result"]["acks"]
    assert ack["retrySeconds"] == int(huge)
    alice.expect_nothing()


# Too much


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


# Too slow


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


def test_a_web_socket_frame_may_be_cut_anywhere(
    talker: WebSocketPeer, witness: Peer
) -> None:
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


def test_ten_thousand_connections_that_never_initialize_are_closed_in_time(loop: Loop) -> None:
    number = raise_file_limit(10_000)
    settings = {"wire.first_request_seconds": 3.0}
    with open_daemon(loop, settings) as daemon, ExitStack() as opened:
        witness = join_by(daemon, "unix", "agent:witness", opened)
        with bounded_memory(daemon, 160 * MIB), select.epoll() as ended:
            waiting = {}
            for _ in range(number):
                sock = opened.enter_context(open_unix(daemon.path))
                waiting[sock.fileno()] = sock
                ended.register(sock.fileno(), select.EPOLLIN)
            witness.expect_nothing()
            while waiting:
                events = ended.poll(PATIENCE_SECONDS)
                assert events, f"{len(waiting)} of {number} are still open"
                for descriptor, _ in events:
                    ended.unregister(descriptor)
                    assert waiting.pop(descriptor).recv(1) == b""
            witness.expect_nothing()


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
            if alice._waiting:
                break
            waiting.append(request_id)
            assert len(waiting) < 200, "nobody said that it is busy"
        (ack,) = alice.answer_to(request_id)["result"]["acks"]
        assert ack == {
            "success": False,
            "message": "peer is busy",
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
    with pytest.raises(Closed):
        while True:
            alice.read_frame()
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


# WebSocket and HTTP


@pytest.fixture
def browser(daemon: Daemon, opened: ExitStack) -> WebSocketPeer:
    """A TCP connection that has said nothing yet."""
    return WebSocketPeer(opened.enter_context(open_tcp(daemon.port)))


@pytest.fixture
def talker(daemon: Daemon, opened: ExitStack, suffix: str) -> WebSocketPeer:
    """A peer on a WebSocket."""
    return join_web_socket(daemon, f"agent:talker{suffix}", opened)


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
    while b"\r\n\r\n" not in browser._received:
        browser.read_some()
    assert browser._received.startswith(b"HTTP/1.1 101 ")
    assert b"extensions" not in browser._received.lower()


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


def test_a_web_socket_that_says_goodbye_is_answered_goodbye(talker: WebSocketPeer) -> None:
    talker.send_frame(CLOSE, struct.pack("!H", 1000))
    assert talker.expect_close() == 1000


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "https://evil.example:7892",
        "null",
        "file://",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "http://localhost.evil.example",
        "http://127.0.0.1:99999999",
    ],
)
def test_a_foreign_origin_is_refused(browser: WebSocketPeer, origin: str) -> None:
    status, text = open_http(browser, *upgrade_lines(f"Origin: {origin}"))
    assert status == 403
    assert text == f"Origin {origin!r} may not use this bus; see allowed_origins.\n"
    browser.expect_close()


def test_a_foreign_page_that_points_its_own_name_at_the_bus_is_refused(
    browser: WebSocketPeer, daemon: Daemon
) -> None:
    lines = upgrade_lines(f"Origin: http://evil.example:{daemon.port}")
    status, _ = open_http(browser, *lines, host="evil.example")
    assert status == 403


def test_two_origins_are_refused(browser: WebSocketPeer, daemon: Daemon) -> None:
    own = f"Origin: http://127.0.0.1:{daemon.port}"
    status, _ = open_http(browser, *upgrade_lines(own, own))
    assert status == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_origin_of_the_bus_itself_is_admitted(
    browser: WebSocketPeer, daemon: Daemon, host: str, suffix: str
) -> None:
    lines = upgrade_lines(f"Origin: http://{host}:{daemon.port}")
    status, _ = open_http(browser, *lines, host=host)
    assert status == 101
    browser.initialize(f"agent:page{suffix}")


def test_a_listed_origin_is_admitted_and_no_other(
    daemon_with: DaemonWith, opened: ExitStack
) -> None:
    daemon = daemon_with({"allowed_origins": ["https://chat.example"]})
    for origin, expected in (("https://chat.example", 101), ("http://chat.example", 403)):
        page = WebSocketPeer(opened.enter_context(open_tcp(daemon.port)))
        status, _ = open_http(page, *upgrade_lines(f"Origin: {origin}"))
        assert status == expected


def test_another_path_is_not_found(browser: WebSocketPeer) -> None:
    _, *lines = upgrade_lines()
    answer = open_http(browser, "GET /other?x=1 HTTP/1.1", *lines)
    assert answer == (404, "There is nothing at /other; the bus is at /.\n")
    browser.expect_close()


def test_a_query_does_not_change_the_path(browser: WebSocketPeer, suffix: str) -> None:
    _, *lines = upgrade_lines()
    status, _ = open_http(browser, "GET /?token=x HTTP/1.1", *lines)
    assert status == 101
    browser.initialize(f"agent:page{suffix}")


def test_a_plain_get_is_told_to_upgrade(browser: WebSocketPeer) -> None:
    status, _ = open_http(browser, "GET / HTTP/1.1")
    assert status == 426
    browser.expect_close()


@pytest.mark.parametrize("method", ["POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH"])
def test_another_http_method_is_not_allowed(browser: WebSocketPeer, method: str) -> None:
    status, _ = open_http(browser, f"{method} / HTTP/1.1", "Content-Length: 0")
    assert status == 405
    browser.expect_close()


def test_http_headers_without_end_are_refused(
    browser: WebSocketPeer, daemon: Daemon, witness: Peer
) -> None:
    with bounded_memory(daemon, 16 * MIB):
        browser.sock.sendall(b"GET / HTTP/1.1\r\n")
        pour(browser.sock, b"X-Filler: " + b"x" * 1000 + b"\r\n", 10_000)
        witness.expect_nothing()
        browser.read_some()
    assert browser._received.startswith(b"HTTP/1.1 431 ")


def test_what_only_begins_like_http_is_closed(browser: WebSocketPeer) -> None:
    browser.sock.sendall(b"GET nonsense\r\n\r\n")
    browser.expect_close()


# Too many


def test_no_free_descriptors_pause_the_bus_and_do_not_end_it(loop: Loop) -> None:
    def allow_few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    with open_daemon(loop, before=allow_few_files) as daemon, ExitStack() as opened:
        witness = join_by(daemon, "unix", "agent:witness", opened)
        with ExitStack() as crowd:
            for _ in range(100):
                crowd.enter_context(open_unix(daemon.path))
            until(lambda: "listener.paused" in daemon.log(), witness)
            assert daemon.open_files() == 64
        newcomer = join_by(daemon, "tcp", "agent:newcomer", opened)
        newcomer.expect_nothing()
        witness.expect_nothing()


def test_a_connection_over_the_limit_is_closed_at_once(
    loop: Loop, transport: Transport, opened: ExitStack
) -> None:
    with open_daemon(loop, {"wire.max_connections": 2}) as daemon, ExitStack() as inner:
        first = join_by(daemon, transport, "agent:first", inner)
        second = join_by(daemon, transport, "agent:second", inner)
        with pytest.raises((Closed, BrokenPipeError)):
            join_by(daemon, transport, "agent:third", inner)
        second.close()

        def has_room() -> bool:
            try:
                join_by(daemon, transport, "agent:third", inner)
            except (Closed, BrokenPipeError):
                return False
            return True

        until(has_room, first)


# Help


def flood(sock: socket.socket, data: bytes) -> int:
    """Send this again and again until the other side takes no more; give how much it took."""
    sock.settimeout(0.5)
    sent, waiting = 0, memoryview(data)
    try:
        while sent < 256 * MIB:
            count = sock.send(waiting)
            sent += count
            waiting = waiting[count:] or memoryview(data)
    except (TimeoutError, OSError):
        return sent
    raise AssertionError("the bus takes whatever it gets")


def pour(sock: socket.socket, data: bytes, times: int) -> None:
    """Send this so many times, or until the other side closes the connection."""
    try:
        for _ in range(times):
            sock.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        pass


def endless(text: bytes) -> Iterator[bytes]:
    yield from (text[index : index + 1] for index in range(len(text)))
    while True:
        yield b"x"


def until(is_so: Callable[[], bool], witness: Peer) -> None:
    """Wait until something is so, with the pings of a witness as the clock."""
    for _ in range(20_000):
        if is_so():
            return
        witness.expect_nothing()
    raise AssertionError("it never came to be")


def raise_file_limit(number: int) -> int:
    """Allow as many open files as the system lets us; give how many of `number` we can open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(number, hard - 1000)
