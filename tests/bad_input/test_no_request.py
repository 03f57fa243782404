"""What is no JSON, no JSON-RPC or no request of ours."""

from __future__ import annotations

import pytest

from tests.bad_input.expected import error, invalid, unparsable
from tests.wire_peers import Json, Peer


@pytest.mark.parametrize("text", [b"hello", b"{", b'"', b"{'id': 1}", b"\x00", b"{}{}", b"nul"])
def test_what_is_not_json_gets_a_parse_error(alice: Peer, text: bytes) -> None:
    alice.send_bytes(text)
    answer = alice.next_json()
    assert answer == unparsable(answer["error"]["data"]["detail"])
    alice.expect_nothing()


def test_invalid_utf8_gets_a_parse_error(alice: Peer) -> None:
    alice.send_bytes(b'{"jsonrpc":"2.0","id":1,"method":"\xff"}')
    assert alice.next_json() == unparsable("not UTF-8 (byte 34)", 1)
    alice.expect_nothing()


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
def test_invalid_utf8_in_a_payload_gets_a_parse_error_and_goes_nowhere(
    alice: Peer, witness: Peer, suffix: str, bad: bytes
) -> None:
    start = b'{"jsonrpc":"2.0","id":1,"method":"sendMessage","params":{"to":"agent:witness'
    start += suffix.encode() + b'","payload":{"text":"'
    alice.send_bytes(start + bad + b'"}}}')
    assert alice.next_json() == unparsable(f"not UTF-8 (byte {len(start)})", 1)
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


@pytest.mark.parametrize("method", ["ping", "sendMessage"])
def test_the_id_of_a_request_has_256_characters_at_most(
    alice: Peer, witness: Peer, suffix: str, method: str
) -> None:
    params = {"to": f"agent:witness{suffix}", "payload": {}} if method == "sendMessage" else {}
    request = {"jsonrpc": "2.0", "method": method, "params": params}
    alice.send_json(request | {"id": "ü" * 257})
    expected = invalid("Expected `str` of length <= 256 - at `$.id`", "ü" * 257)
    assert alice.next_json() == expected
    alice.expect_nothing()
    witness.expect_nothing()
    alice.send_json(request | {"id": "ü" * 256})
    if method == "sendMessage":
        witness.answer(witness.next_message(), {"success": True, "message": "", "payload": {}})
    assert "result" in alice.answer_to("ü" * 256)


def test_an_id_alone_is_no_request(alice: Peer) -> None:
    alice.send_bytes(b'{"id":1}')
    assert alice.next_json() == invalid("The request failed schema validation", 1)
    alice.expect_nothing()


@pytest.mark.parametrize("version", ['"1.0"', "2.0", "null", "2", '"2"', "[]", '"2.0 "'])
@pytest.mark.parametrize("method", ["ping", "sendMessage"])
def test_a_wrong_jsonrpc_is_no_request(alice: Peer, version: str, method: str) -> None:
    params = '{"to":"tg:1","payload":{}}'
    alice.send_bytes(
        f'{{"jsonrpc":{version},"id":1,"method":"{method}","params":{params}}}'.encode()
    )
    assert alice.next_json() == invalid("The request failed schema validation", 1)
    alice.expect_nothing()


@pytest.mark.parametrize("method", ["ping", "sendMessage"])
def test_a_missing_jsonrpc_is_no_request(alice: Peer, method: str) -> None:
    alice.send_json({"id": 1, "method": method, "params": {"to": "tg:1", "payload": {}}})
    assert alice.next_json() == invalid("The request failed schema validation", 1)
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


@pytest.mark.parametrize("params", ["text", 7, True])
def test_params_that_are_neither_object_nor_array_are_no_request(alice: Peer, params: Json) -> None:
    alice.send_json({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": params})
    assert alice.next_json() == invalid("The request failed schema validation", 1)
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


_WRONG: list[tuple[str, Json]] = [
    *((member, value) for member in ("from", "to", "messageId") for value in ([7], {"a": 1}, True)),
    ("from", 7),
    ("to", 7),
    ("to", None),
    ("messageId", 1.5),
]


@pytest.mark.parametrize(("member", "value"), _WRONG)
def test_a_member_of_the_wrong_type_is_refused(alice: Peer, member: str, value: Json) -> None:
    request_id = alice.request("sendMessage", {"to": "tg:1", "payload": {}} | {member: value})
    kinds = {int: "int", type(None): "null", list: "array", dict: "object", bool: "bool"}
    wanted = "int | str" if member == "messageId" else "str"
    kind = kinds.get(type(value), "float")
    expected = f"sendMessage: Expected `{wanted}`, got `{kind}` - at `$.{member}`"
    assert alice.next_json() == error(-32602, expected, request_id, rule="params")
    alice.expect_nothing()


def test_a_message_id_has_256_characters_at_most(alice: Peer, witness: Peer, suffix: str) -> None:
    params: Json = {"to": f"agent:witness{suffix}", "payload": {}}
    refused = alice.request("sendMessage", params | {"messageId": "ü" * 257})
    expected = "sendMessage: Expected `str` of length <= 256 - at `$.messageId`"
    assert alice.next_json() == error(-32602, expected, refused, rule="params")
    alice.request("sendMessage", params | {"messageId": "ü" * 256})
    assert witness.next_message()["params"]["messageId"] == "ü" * 256


def test_an_empty_message_id_is_as_good_as_none(alice: Peer, witness: Peer, suffix: str) -> None:
    params: Json = {"to": f"agent:witness{suffix}", "payload": {}, "messageId": ""}
    request_id = alice.request("sendMessage", params)
    message = witness.next_message()
    made = message["params"]["messageId"]
    assert made.startswith("msg_")
    witness.answer(message, {"success": True})
    assert alice.answer_to(request_id)["result"]["messageId"] == made


@pytest.mark.parametrize("payload", ["text", 7, None, [{}], True])
def test_a_payload_that_is_no_object_is_refused(alice: Peer, payload: Json) -> None:
    request_id = alice.request("sendMessage", {"to": "tg:1", "payload": payload})
    expected = "sendMessage: payload must be an object"
    assert alice.next_json() == error(-32602, expected, request_id, rule="params", member="payload")
    alice.expect_nothing()


@pytest.mark.parametrize("missing", ["to", "payload"])
def test_a_missing_member_is_refused(alice: Peer, missing: str) -> None:
    params: Json = {"to": "tg:1", "payload": {}}
    del params[missing]
    request_id = alice.request("sendMessage", params)
    expected = f"sendMessage: Object missing required field `{missing}`"
    assert alice.next_json() == error(-32602, expected, request_id, rule="params")
    alice.expect_nothing()
