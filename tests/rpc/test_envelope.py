"""Envelopes: which is which, and how badly made errors are read."""

from __future__ import annotations

import pytest
from msgspec import UNSET, Raw

from busd.errors import Busy, NotSubscribed
from busd.rpc.envelope import ErrorSeen, decode_loose, encode_failure, read_error

REQUEST = b'{"jsonrpc":"2.0","id":1,"method":"m"}'
NOTIFICATION = b'{"jsonrpc":"2.0","method":"m","params":[]}'
REPLY = b'{"jsonrpc":"2.0","id":1,"result":null}'


@pytest.mark.parametrize(
    ("text", "is_request", "is_reply", "wants_answer"),
    [
        (REQUEST, True, False, True),
        (NOTIFICATION, True, False, False),
        (REPLY, False, True, False),
        (b'{"id":1,"error":{}}', False, True, False),
        (b'{"method":null,"result":1}', False, True, False),
        (b'{"jsonrpc":"2.0","id":null,"method":"m"}', True, False, True),
        (b'{"jsonrpc":"2.0","method":"m","params":null}', True, False, False),
        (b'{"jsonrpc":"2.0","method":"m","params":1}', False, False, True),
        (b'{"jsonrpc":"2.0","method":"m","params": {} }', True, False, False),
        (b'{"jsonrpc":2.0,"method":"m"}', False, False, True),
        (b'{"method":"m"}', False, False, True),
        (b'{"jsonrpc":"2.0","method":1}', False, False, True),
        (b'{"id":1}', False, False, True),
        (b"{}", False, False, True),
    ],
)
def test_requests_replies_and_nonsense_are_told_apart(
    text: bytes, is_request: bool, is_reply: bool, wants_answer: bool
) -> None:
    envelope = decode_loose(text)
    assert envelope.is_request is is_request
    assert envelope.is_reply is is_reply
    assert envelope.wants_answer is wants_answer


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (b'{"code":5,"message":"no","data":[1]}', ErrorSeen(5, "no", Raw(b"[1]"))),
        (b'{"message":"no"}', ErrorSeen(-32603, "no")),
        (b"{}", ErrorSeen(-32603, "")),
        (b"null", ErrorSeen(-32603, "malformed error")),
        (b'{"code":"five"}', ErrorSeen(-32603, "malformed error")),
        (b'{"data":1e999}', ErrorSeen(data=Raw(b"1e999"))),
        (
            b'{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            ErrorSeen(message="malformed error"),
        ),
    ],
)
def test_an_error_is_read_however_badly_it_is_made(raw: bytes, body: ErrorSeen) -> None:
    read = read_error(Raw(raw))
    assert (read.code, read.message) == (body.code, body.message)
    assert (read.data is UNSET) == (body.data is UNSET)
    if read.data is not UNSET and body.data is not UNSET:
        assert bytes(read.data) == bytes(body.data)


def test_a_failure_names_its_rule_and_whatever_else_is_known() -> None:
    assert encode_failure("r1", NotSubscribed("not subscribed", address="tg:*")) == (
        b'{"jsonrpc":"2.0","id":"r1","error":{"code":-32003,"message":"not subscribed",'
        b'"data":{"rule":"subscription","address":"tg:*"}}}'
    )
    assert b'"id":null' in encode_failure(None, Busy("later"))
