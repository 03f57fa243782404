"""The method table: jsonrpcserver calls our functions, and nothing of ours leaks out."""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from busd.errors import InvalidParams, NotInitialized, RequestError
from busd.rpc.endpoint import Asker
from busd.rpc.envelope import RequestId, decode_loose
from busd.rpc.methods import DEFERRED, Methods, MethodTable, dispatch


class Number(msgspec.Struct):
    n: int


class Listener:
    """Keeps the answers that it is given."""

    max_frame_bytes = inf
    out = ()

    def __init__(self) -> None:
        self.heard: list[tuple[RequestId, Any]] = []

    def answer(self, request_id: RequestId, result: Any, /) -> None:
        self.heard.append((request_id, result))

    def answer_encoded(self, frame: bytes, /) -> None:
        raise NotImplementedError

    def fail(self, request_id: RequestId, fault: RequestError, /) -> None:
        self.heard.append((request_id, fault))

    def charge(self) -> None: ...


methods: Methods[str] = Methods()


@methods.register("double", Number, Number, errors=(InvalidParams,))
def double(caller: str, params: Number, asker: Asker, request_id: RequestId, /) -> Number:
    """Return twice the number.

    This is not for everybody.
    """
    if params.n < 0:
        raise InvalidParams("no negative numbers", n=params.n)
    if params.n == 13:
        raise RuntimeError("the secret of the house")
    return Number(2 * params.n)


@methods.register("whisper", Number, Number)
def whisper(caller: str, params: Number, asker: Asker, request_id: RequestId, /) -> object:
    """Answer by another way."""
    asker.answer(request_id, caller)
    return DEFERRED


def _ask(text: bytes, table: MethodTable | None = None) -> list[tuple[RequestId, Any]]:
    listener = Listener()
    dispatch(table or methods.table, decode_loose(text), "caller", listener)
    return listener.heard


def test_a_method_gets_its_params_typed_and_its_result_is_the_answer() -> None:
    assert _ask(b'{"jsonrpc":"2.0","id":1,"method":"double","params":{"n":2}}') == [(1, Number(4))]


def test_a_method_that_answers_by_itself_is_not_answered_for() -> None:
    asked = b'{"jsonrpc":"2.0","id":"x","method":"whisper","params":{"n":2}}'
    assert _ask(asked) == [("x", "caller")]


def test_a_notification_is_carried_out_and_not_answered() -> None:
    assert _ask(b'{"jsonrpc":"2.0","method":"double","params":{"n":2}}') == []
    assert _ask(b'{"jsonrpc":"2.0","method":"double","params":{"n":-1}}') == []
    assert _ask(b'{"jsonrpc":"2.0","method":"none"}') == []


@pytest.mark.parametrize(
    ("rest", "code", "data"),
    [
        (b'"method":"double","params":{"n":-1}', -32602, {"rule": "params", "n": -1}),
        (b'"method":"double","params":{"n":"x"}', -32602, {"rule": "params"}),
        (b'"method":"double","params":[2]', -32602, {"rule": "params"}),
        (b'"method":"double"', -32602, {"rule": "params"}),
        (b'"method":"none"', -32601, {"rule": "method", "detail": "none"}),
        (b'"method":1', -32600, {"rule": "json-rpc"}),
    ],
)
def test_a_fault_keeps_its_code_and_its_data(
    rest: bytes, code: int, data: dict[str, object]
) -> None:
    ((_, fault),) = _ask(b'{"jsonrpc":"2.0","id":1,' + rest + b"}")
    assert fault.code == code
    assert data.items() <= fault.data.items()


def test_a_fault_of_ours_is_logged_and_not_told() -> None:
    with capture_logs() as logs:
        ((request_id, fault),) = _ask(
            b'{"jsonrpc":"2.0","id":1,"method":"double","params":{"n":13}}'
        )
    assert (request_id, fault.code, fault.data) == (1, -32603, {"rule": "internal"})
    assert "secret" not in fault.message
    assert [(entry["event"], entry["method"]) for entry in logs] == [("request.failed", "double")]


def test_a_table_of_only_one_method_refuses_all_others_known_or_not() -> None:
    table = methods.only("whisper", lambda: NotInitialized("first things first"))
    for method in (b"double", b"none"):
        ((_, fault),) = _ask(b'{"jsonrpc":"2.0","id":1,"method":"%s"}' % method, table)
        assert (fault.code, fault.message) == (-32001, "first things first")
    assert _ask(b'{"jsonrpc":"2.0","id":1,"method":"whisper","params":{"n":1}}', table) == [
        (1, "caller")
    ]


def test_a_method_is_described_by_the_first_line_of_its_docstring() -> None:
    described = methods.described["double"]
    assert described.summary == "Return twice the number."
    assert (described.params, described.result) == (Number, Number)
    assert described.errors == (InvalidParams,)
