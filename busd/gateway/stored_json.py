"""How values are written in the store: as JSON that can certainly be read again."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec

from busd.gateway.stored import Unstorable

T = TypeVar("T")
_MARGIN_LEVELS = 32


def encode(value: msgspec.Struct) -> bytes:
    """Return a value as JSON; raise Unstorable if it could not be decoded again.

    msgspec encodes whatever is in a member: a type that is not among those of its annotation, or
    Raw that is no JSON, or arrays nested so deeply that decoding only just succeeds. One such entry
    must not make its conversation unreadable. So it is decoded here with more levels around it,
    which takes 3 µs for a short entry.
    """
    try:
        body = msgspec.json.encode(value)
        body.decode()  # decoding does not check the UTF-8 of Raw
        _within_arrays(type(value))(b"[" * _MARGIN_LEVELS + body + b"]" * _MARGIN_LEVELS)
    except (ValueError, RecursionError) as problem:  # those of msgspec and Unicode are ValueErrors
        raise Unstorable(str(problem)) from None
    return body


def decoder_of(kind: type[T]) -> Callable[[bytes], T]:
    """Return the function that decodes values of one kind."""
    return msgspec.json.Decoder(kind).decode


@cache
def _within_arrays(kind: type[Any]) -> Callable[[bytes], Any]:
    nested: Any = kind
    for _ in range(_MARGIN_LEVELS):
        nested = list[nested]
    return msgspec.json.Decoder(nested).decode
