"""Whatever JSON arrives, the bus neither stumbles nor owes an answer, nor gives one too many."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from busd.testing import MemoryBus, ScriptedPeer
from tests.properties.json_texts import texts

_TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
_NUMBER = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
_SCALAR = st.none() | st.booleans() | _NUMBER | _TEXT
_VALUE: st.SearchStrategy[Any] = st.recursive(
    _SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)
_METHOD = st.sampled_from(
    ["initialize", "subscribe", "unsubscribe", "sendMessage", "ping", "getStatus", "rpc.discover"]
)
_PARAMS = st.fixed_dictionaries(
    {},
    optional={
        # Nobody has these addresses: what is accepted is answered at once.
        "to": st.sampled_from(["nobody", "x:1", "", "a b"]) | _VALUE,
        "from": st.sampled_from(["me", "x:1", ""]) | _VALUE,
        "messageId": _VALUE,
        "payload": st.dictionaries(_TEXT, _SCALAR, max_size=2) | _VALUE,
        "address": st.sampled_from(["x:*", "never"]) | _VALUE,
        "clientId": _VALUE,
        "clientInfo": _VALUE,
    },
)
_ENVELOPE = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | _VALUE,
        "id": _SCALAR | _VALUE,
        "method": _METHOD | _VALUE,
        "params": _PARAMS | _VALUE,
        "result": _VALUE,
        "error": _VALUE,
    },
)
_REQUEST = st.builds(
    lambda method, params, rest: {"jsonrpc": "2.0", "method": method, "params": params} | rest,
    _METHOD,
    _PARAMS,
    st.fixed_dictionaries({}, optional={"id": _SCALAR}),
)
_ELEMENT = _REQUEST | _ENVELOPE | _VALUE
_FRAME = _ELEMENT | st.lists(_ELEMENT, max_size=4)


def _wants_answer(value: Any) -> bool:
    """Say by the letter of JSON-RPC 2.0 whether this gets an answer."""
    if not isinstance(value, dict):
        return True
    if isinstance(value.get("id"), bool | list | dict):
        return True  # no id at all: it is told that it makes no sense
    method, params = value.get("method"), value.get("params")
    if method is None and ("result" in value or "error" in value):
        return False
    is_request = value.get("jsonrpc") == "2.0" and isinstance(method, str)
    is_request = is_request and isinstance(params, list | dict | None)
    return "id" in value or not is_request


def _member() -> ScriptedPeer:
    peer = MemoryBus().join("me")
    peer.unsubscribe("me")
    peer.frames.clear()
    return peer


@given(_FRAME)
def test_every_request_is_answered_once_and_nothing_else_is(value: Any) -> None:
    peer = _member()
    with capture_logs() as logs:
        peer.send_frame(json.dumps(value).encode())
    assert not [entry for entry in logs if entry["log_level"] == "error"]
    assert peer.is_connected
    answers = [json.loads(frame) for frame in peer.frames]
    if isinstance(value, list) and value:
        wanted = [element for element in value if _wants_answer(element)]
        assert [len(answer) for answer in answers] == ([len(wanted)] if wanted else [])
    else:
        assert len(answers) == int(_wants_answer(value))


@given(_FRAME)
def test_a_stranger_is_answered_likewise(value: Any) -> None:
    peer = MemoryBus().connect()
    with capture_logs() as logs:
        peer.send_frame(b" " + json.dumps(value).encode())  # what begins so is lines
    assert not [entry for entry in logs if entry["log_level"] == "error"]
    assert peer.is_connected
    is_batch = isinstance(value, list) and value
    wants = any(map(_wants_answer, value)) if is_batch else _wants_answer(value)
    assert len(peer.frames) == int(wants)


@given(texts(" \t\r"))
def test_no_json_text_makes_the_bus_stumble(text: str) -> None:
    _check_survives(text.encode())


@given(st.binary().map(lambda data: data.replace(b"\n", b"")))
def test_no_bytes_make_the_bus_stumble(data: bytes) -> None:
    _check_survives(data)


def _check_survives(frame: bytes) -> None:
    peer = _member()
    with capture_logs() as logs:
        peer.send_frame(frame)
        peer.send_frame(b'{"jsonrpc":"2.0","id":"still there?","method":"ping"}')
    assert not logs
    assert json.loads(peer.frames[-1])["id"] == "still there?"
    assert len(peer.frames) <= 2
