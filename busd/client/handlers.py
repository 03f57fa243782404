"""Handlers: functions that answer messages, chosen by the payload's type."""

from __future__ import annotations

import inspect
import logging
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from busd.bus.message import Ack
from busd.client.incoming import Incoming, ack_of, failed_ack
from busd.errors import Refuse

log = logging.getLogger("busd.client")

Handler = Callable[[Any], Any]  # plain or async, with any argument and result
Found = tuple[
    Handler, Callable[[Incoming], Any]
]  # the handler, and the function that reads its argument
H = TypeVar("H", bound=Callable[[Any], Any])
ANY_TYPE = ""


class Handlers:
    """The handlers of one client."""

    def __init__(self) -> None:
        self._by_type: dict[str, Found] = {}

    def __bool__(self) -> bool:
        return bool(self._by_type)

    def add(self, type_name: str, function: Callable[[Any], Any], run: Handler) -> None:
        """Register `run` for messages of a type; `function`'s annotation selects its argument."""
        if type_name in self._by_type:
            raise ValueError(f"there is a handler for {type_name or 'every type'!r} already")
        self._by_type[type_name] = (run, _reader(function))

    def find(self, message: Incoming) -> Found | None:
        """Return the handler for this message's type, else the one for every type."""
        return self._by_type.get(message.type) or self._by_type.get(ANY_TYPE)

    async def answer(self, message: Incoming, found: Found | None) -> Ack:
        """Return the handler's result as an ack; an exception becomes a failed ack."""
        if found is None:
            return failed_ack(f"no handler for type {message.type!r}")
        run, read = found
        try:
            answer = run(read(message))
            return ack_of(await answer if inspect.isawaitable(answer) else answer)
        except Refuse as refusal:
            return failed_ack(refusal.reason, refusal.retry_seconds)
        except Exception as problem:
            # The details stay in our log; the sender learns only that it failed.
            log.exception("handler of %r failed", message)
            return failed_ack(f"handler failed: {type(problem).__name__}")


def _reader(function: Callable[[Any], Any]) -> Callable[[Incoming], Any]:
    """Return a function that reads the argument of a handler, as its annotation requires."""
    kind = _first_annotation(function)
    if kind is Raw:
        return lambda message: message.raw
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return lambda message: message.read(kind)
    if kind is dict or typing.get_origin(kind) is dict:
        return lambda message: message.payload
    return lambda message: message


def _first_annotation(function: Callable[[Any], Any]) -> Any:
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        raise TypeError("a handler takes one argument: the message or its payload")
    kind = parameters[0].annotation
    if not isinstance(kind, str):
        return kind
    # Only this one is resolved: the others may be imported for type checkers only.
    alone = types.SimpleNamespace(__annotations__={"kind": kind})
    try:
        return typing.get_type_hints(alone, getattr(function, "__globals__", {}))["kind"]
    except NameError:
        if kind.endswith("Incoming"):
            return Incoming
        raise TypeError(f"{kind!r} is not known where the handler is defined") from None
