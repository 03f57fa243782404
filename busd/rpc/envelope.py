"""The shapes of JSON-RPC 2.0, decoded once and encoded once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from math import inf
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType
from msgspec.structs import astuple

from busd.errors import RequestError

P = TypeVar("P")
R = TypeVar("R")

T = TypeVar("T")
_PAGE_BYTES = 3 << 18  # of a list in an answer: leaves room in a frame of the default size
ENVELOPE_BYTES = 2_048  # around a list in an answer: a request's id has up to 256 characters
MAX_BATCH = 1_000  # elements
_SHORT_CHARACTERS = 200  # of an error's message, if all of it would not fit
# A request's id is kept until its answer, and in the activity log: not as long as a frame, then.
TextId = Annotated[str, Meta(max_length=256)]
# What names a request. UNSET: a notification, nobody waits for an answer.
RequestId = int | float | TextId | UnsetType | None


class Envelope(msgspec.Struct, Generic[P, R], gc=False):
    """Whatever arrives, request or reply, in the one shape that is expected most often.

    One merged struct is decoded in 0.5 µs; finding out first which kind it is would cost a second
    pass. Whatever does not fit goes the slow way (`LooseEnvelope`).
    """

    jsonrpc: str = ""
    id: int | TextId | UnsetType | None = UNSET
    method: str | None = None
    params: P | UnsetType = UNSET
    result: R | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class LooseEnvelope(msgspec.Struct):
    """The same with everything optional and the bodies untouched."""

    id: RequestId = UNSET
    jsonrpc: Any = None  # any JSON value may stand here; the validator judges it
    method: Any = None
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.params is not UNSET and bytes(memoryview(self.params)[:5]) == b"null":
            self.params = UNSET

    @property
    def is_request(self) -> bool:
        """True for what the specification calls a valid request (or notification)."""
        has_body = self.params is UNSET or bytes(self.params)[:1] in (b"{", b"[")
        return self.jsonrpc == "2.0" and isinstance(self.method, str) and has_body

    @property
    def wants_answer(self) -> bool:
        return not (self.is_reply or (self.id is UNSET and self.is_request))

    @property
    def has_error(self) -> bool:
        """True if there is an error that says something; some peers send null beside a result."""
        return self.error is not UNSET and bytes(self.error) != b"null"

    @property
    def is_reply(self) -> bool:
        return self.method is None and not (self.result is UNSET and self.error is UNSET)


class IdOnly(msgspec.Struct):
    """The id of a frame that is otherwise not a request, or whose id is too long for one."""

    id: int | float | str | None = None


class Call(msgspec.Struct, tag_field="jsonrpc", tag="2.0", gc=False):
    """A request of ours; params last, so that the end of the frame is the end of the params."""

    id: int
    method: str
    params: Any  # any struct


class Notification(msgspec.Struct, tag_field="jsonrpc", tag="2.0"):
    """A request that nobody waits for."""

    method: str
    params: Any  # any struct


class Result(msgspec.Struct, tag_field="jsonrpc", tag="2.0", gc=False):
    """A reply that went well."""

    id: RequestId
    result: Any  # any struct


class ErrorBody(msgspec.Struct):
    """The `error` member of a reply of ours."""

    code: int = -32603
    message: str = ""
    data: Any = UNSET  # any JSON value


class ErrorSeen(msgspec.Struct):
    """The `error` member of somebody's reply; its data are carried as they are."""

    code: int = -32603
    message: str = ""
    data: Raw | UnsetType = UNSET


class Failure(msgspec.Struct, tag_field="jsonrpc", tag="2.0"):
    """A reply that did not go well."""

    id: RequestId
    error: ErrorBody


encode = msgspec.json.Encoder().encode
decode_loose = msgspec.json.Decoder(LooseEnvelope).decode
decode_id = msgspec.json.Decoder(IdOnly).decode
decode_error = msgspec.json.Decoder(ErrorSeen).decode
decode_elements = msgspec.json.Decoder(list[Raw]).decode


def decode_batch(frame: bytes) -> list[Raw]:
    """Return the elements of a batch, but not more than MAX_BATCH + 1 of them.

    A frame of a MiB has room for 500,000. Made into objects they take 25 ms, skipped they take 2.
    """
    elements = astuple(_batch_decoder().decode(frame))
    return [element for element in elements if element]


@cache
def _batch_decoder() -> msgspec.json.Decoder[Any]:
    """Return the decoder, created on first use: so many members take a while."""
    members = [(f"element{number}", Raw, Raw(b"")) for number in range(MAX_BATCH + 1)]
    return msgspec.json.Decoder(msgspec.defstruct("Elements", members, array_like=True))


def encode_failure(
    request_id: RequestId, fault: RequestError, max_frame_bytes: float = inf
) -> bytes:
    """Return the error reply for a fault; it repeats a peer's own words only if they fit."""
    frame = encode(Failure(request_id, ErrorBody(fault.code, fault.message, fault.data)))
    if len(frame) <= max_frame_bytes:
        return frame
    rule = {"rule": fault.data["rule"]}
    body = ErrorBody(fault.code, fault.message[:_SHORT_CHARACTERS], rule)
    frame = encode(Failure(request_id, body))
    return frame if len(frame) <= max_frame_bytes else encode(Failure(None, body))


def as_many_as_fit(items: Iterable[T], max_bytes: float = _PAGE_BYTES) -> list[T]:
    """Return the first items whose JSON fits into so many bytes together: part of an answer."""
    fitting: list[T] = []
    for item in items:
        max_bytes -= len(encode(item)) + 1
        if max_bytes < 0:
            break
        fitting.append(item)
    return fitting


def read_id(frame: bytes) -> RequestId:
    """Return the id under which to refuse a frame; None if it has none that can be read."""
    try:
        return decode_id(frame).id
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def read_error(raw: Raw) -> ErrorSeen:
    """Read the `error` member of somebody's reply, however badly it is made."""
    try:
        return decode_error(raw)
    except (msgspec.MsgspecError, RecursionError):
        return ErrorSeen(message="malformed error")
