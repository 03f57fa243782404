"""The method table: jsonrpcserver's synchronous dispatcher over functions of typed params.

A method is registered once with the types of its params and result; the table that jsonrpcserver
calls, the direct route of the hot methods and `rpc.discover` all come from that registration.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import msgspec
import structlog
from msgspec import UNSET, Raw

from busd.errors import (
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    RequestError,
)
from busd.rpc.endpoint import Asker
from busd.rpc.envelope import LooseEnvelope, RequestId
from busd.rpc.reading import reader_of

with warnings.catch_warnings():
    # jsonrpcserver 5.0 reads its schema by a function that Python 3.11 and 3.12 call deprecated.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message="(read|open)_text")
    from jsonrpcserver import JsonRpcError, Success, dispatch_to_response
    from oslash.either import Left, Right

log = structlog.get_logger("busd.rpc")

C = TypeVar("C", contravariant=True)
# What a method returns that answers later, or never.
DEFERRED: Final = object()
_NO_PARAMS = Raw(b"{}")


class MethodFunction(Protocol[C]):
    """A method of the table; `Any` because each has params and a result of its own."""

    def __call__(self, caller: C, params: Any, asker: Asker, request_id: RequestId, /) -> Any: ...


class Method(msgspec.Struct, frozen=True):
    """One method as it was registered."""

    name: str
    params: type
    result: type
    summary: str
    errors: tuple[type[RequestError], ...]


class Request(msgspec.Struct):
    """The context that jsonrpcserver passes through to the function it calls."""

    caller: Any  # the endpoint; the table does not care which kind
    asker: Asker
    request_id: RequestId


class Methods(Generic[C]):
    """A table of methods that callers of type C may call."""

    def __init__(self) -> None:
        self.described: dict[str, Method] = {}
        self.document: Raw | None = None  # that describes them; None if it is to be made anew
        self._table: dict[str, Callable[..., Any]] = {}

    def register(
        self,
        name: str,
        params: type,
        result: type,
        *,
        errors: tuple[type[RequestError], ...] = (),
    ) -> Callable[[MethodFunction[C]], MethodFunction[C]]:
        """Add a function to the table; its docstring becomes the summary of the method."""

        def registered(function: MethodFunction[C]) -> MethodFunction[C]:
            summary = (inspect.getdoc(function) or "").split("\n")[0]
            self.described[name] = Method(name, params, result, summary, errors)
            self._table[name] = _as_jsonrpcserver_calls(name, params, function)
            self.document = None
            return function

        return registered

    def forget(self, name: str) -> None:
        """Remove a method from the table, if it is there."""
        self.described.pop(name, None)
        self.document = None
        self._table.pop(name, None)

    def copy(self) -> Methods[C]:
        """Return a table that can be added to without changing this one."""
        copied: Methods[C] = Methods()
        copied.described = dict(self.described)
        copied._table = dict(self._table)
        return copied

    def only(self, name: str, refuse: Callable[[], RequestError]) -> MethodTable:
        """Return a table in which every other method, known or not, is refused."""
        refused = _as_jsonrpcserver_calls(name, msgspec.Raw, _refusing(refuse))
        return _RefusingTable(refused, {name: self._table[name]})

    @property
    def table(self) -> MethodTable:
        return self._table


MethodTable = dict[str, Callable[..., Any]]


class _RefusingTable(dict[str, Callable[..., Any]]):
    def __init__(self, refused: Callable[..., Any], known: MethodTable) -> None:
        super().__init__(known)
        self._refused = refused

    def __missing__(self, name: str) -> Callable[..., Any]:
        return self._refused


def _refusing(refuse: Callable[[], RequestError]) -> MethodFunction[Any]:
    def refused(caller: Any, params: Any, asker: Asker, request_id: RequestId, /) -> Any:
        raise refuse()

    return refused


def _as_jsonrpcserver_calls(
    name: str, params_type: type, function: MethodFunction[Any]
) -> Callable[..., Any]:
    """Wrap a function of typed params for jsonrpcserver: decode, call, translate faults once."""
    decode: Callable[[Raw], Any] = reader_of(params_type).decode

    def called(request: Request, /, raw: Raw = _NO_PARAMS) -> Any:
        try:
            try:
                params = decode(raw)
            except (msgspec.MsgspecError, RecursionError) as problem:
                raise InvalidParams(f"{name}: {problem}") from None
            return Success(function(request.caller, params, request.asker, request.request_id))
        except RequestError as fault:
            raise JsonRpcError(fault.code, fault.message, fault.data) from None
        except Exception:
            log.exception("request.failed", method=name)
            ours = InternalError("internal error; the log of the bus has the details")
            raise JsonRpcError(ours.code, ours.message, ours.data) from None

    # jsonrpcserver asks for the signature at every call; found ready it costs 1 µs, not 20.
    called.__signature__ = inspect.signature(called)  # type: ignore[attr-defined]
    return called


def dispatch(table: MethodTable, envelope: LooseEnvelope, caller: object, asker: Asker) -> None:
    """Dispatch one loosely decoded request with jsonrpcserver."""
    response = dispatch_to_response(
        cast(str, envelope),
        table,
        context=Request(caller, asker, envelope.id),
        deserializer=cast(Any, _as_jsonrpcserver_reads),
        validator=cast(Any, _validate),
    )
    # OSlash's Either keeps what went well in _value and what did not in _error.
    if isinstance(response, Right):
        success = response._value
        if success.result is not DEFERRED:
            asker.answer(success.id, success.result)
    elif isinstance(response, Left):
        error = response._error
        # jsonrpcserver answers what is not a valid request under no id, even if it has one.
        request_id = None if envelope.id is UNSET else envelope.id
        asker.fail(request_id, _fault(error.code, error.message, error.data))


def _as_jsonrpcserver_reads(envelope: LooseEnvelope) -> dict[str, Any]:
    """Return the request as the dict that jsonrpcserver reads, its params one untouched value."""
    request: dict[str, Any] = {"method": envelope.method, "is_request": envelope.is_request}
    if envelope.id is not UNSET:
        request["id"] = envelope.id
    if envelope.params is not UNSET:
        request["params"] = {"raw": envelope.params}
    return request


def _validate(request: Any) -> None:
    """Raise if this is no valid request; jsonrpcserver then answers -32600."""
    if not request["is_request"]:
        raise ValueError("not a request")


def _fault(code: int, message: str, data: object) -> RequestError:
    """Return the fault that jsonrpcserver found, in our form: `data` always names the rule."""
    kinds: dict[int, type[RequestError]] = {-32600: InvalidRequest, -32601: MethodNotFound}
    if isinstance(data, dict):
        fault = RequestError(message, **data)
    else:
        fault = kinds.get(code, InternalError)(message, detail=str(data))
    fault.code = code
    return fault
