"""An endpoint: one JSON-RPC conversation over one connection, both sides asking and answering."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from busd.errors import (
    Busy,
    InvalidParams,
    InvalidRequest,
    ParseError,
    ProtocolViolation,
    RequestError,
)
from busd.rpc.envelope import (
    MAX_BATCH,
    Envelope,
    LooseEnvelope,
    RequestId,
    Result,
    decode_batch,
    decode_loose,
    encode,
    encode_failure,
    read_id,
)
from busd.wire.connection import Connection

P = TypeVar("P")
R = TypeVar("R")
_UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Asker(Protocol):
    """Whoever waits for the answer to a request: an endpoint, or an element of a batch."""

    @property
    def max_frame_bytes(self) -> float: ...  # the most that may be sent to it at once
    @property
    def out(self) -> list[bytes] | tuple[()]: ...  # while not empty, encoded answers may go here
    def answer(self, request_id: RequestId, result: Any, /) -> None: ...
    def answer_encoded(self, frame: bytes, /) -> None: ...
    def fail(self, request_id: RequestId, fault: RequestError, /) -> None: ...
    def charge(self) -> None: ...  # it asked for something expensive


class Waiting(Protocol):
    """What waits for the reply to a call of ours."""

    def settle(self, endpoint: Any, result: Any, /) -> None: ...
    def refuse(self, endpoint: Any, error: Raw | UnsetType, /) -> None: ...


class Endpoint(Generic[P, R]):
    """Decodes what a connection receives and takes it to the method or the call it is meant for.

    A subclass names its one hot method, gives the decoder of whole frames (params are P, results
    are R), and says what to do with everything else.
    """

    __slots__ = (
        "_decode",
        "_hot_method",
        "answer_encoded",
        "calls",
        "connection",
        "max_frame_bytes",
        "out",
    )

    hot_method: ClassVar[str]
    # Looked up ready to be called: `self.decoder.decode` would make a bound method each time.
    decode: ClassVar[staticmethod[[bytes], Envelope[Any, Any]]]

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        # Of the class; looked up there, they cost 0.013 µs more per acked message.
        self._decode, self._hot_method = self.decode, self.hot_method
        # Sends an answer that is encoded already: looked up once, it saves a call per message.
        self.answer_encoded = connection.send
        self.out = connection.out
        self.max_frame_bytes: float = inf  # what the other side takes
        self.calls: dict[int, Any] = {}  # call id -> Waiting; Any keeps the hot path free of casts

    # What a subclass says

    def on_hot(self, params: P, asker: Asker, request_id: RequestId) -> None:
        """Handle a well-formed request of the hot method."""
        raise NotImplementedError

    def on_request(self, envelope: LooseEnvelope, asker: Asker) -> None:
        """Handle any other request."""
        raise NotImplementedError

    def read_result(self, raw: Raw) -> R:
        """Read a result that is not quite as expected; raises msgspec's errors if it is not one."""
        raise NotImplementedError

    def shortest_answer_bytes(self, frame: bytes) -> int:
        """Return the size of the answer in a batch that is full; 0 if an error will do."""
        return 0

    def on_refused(self, fault: RequestError) -> None:
        """Handle that a request, alone or in a batch, was answered with an error."""

    # From the wire

    def receive(self, frame: bytes, asker: Asker | None = None) -> None:
        """Dispatch one frame; its answer goes to `asker`, by default to this endpoint."""
        try:
            if not frame.isascii():
                frame.decode()  # payloads are carried undecoded: nobody else would notice
            decode = self._decode  # not called as a method: that would be looked up in the class
            envelope = decode(frame)
        except _UNDECODABLE:
            self._receive_odd(frame, asker)
            return
        if envelope.method is None:
            if envelope.result is not UNSET and envelope.error is UNSET:
                call = self.calls.pop(envelope.id, None)  # type: ignore[arg-type]
                if call is not None:  # else too late, twice, or never asked for
                    call.settle(self, envelope.result)
                return
        elif (
            envelope.method == self._hot_method
            and envelope.params is not UNSET
            and envelope.jsonrpc == "2.0"
        ):
            try:
                self.on_hot(envelope.params, asker or self, envelope.id)
            except RequestError as fault:
                (asker or self).fail(envelope.id, fault)
            return
        self._receive_odd(frame, asker)

    def _receive_odd(self, frame: bytes, asker: Asker | None) -> None:
        """Handle a frame that is not one of the frequent ones."""
        self.connection.charge()
        try:
            if not frame.isascii():
                frame.decode()
            if asker is None and frame.lstrip()[:1] == b"[":
                self._receive_batch(decode_batch(frame))
                return
            envelope = decode_loose(frame)
        except _UNDECODABLE as problem:
            if frame.strip():
                (asker or self).fail(read_id(frame), _why_undecodable(problem))
            return
        if envelope.is_reply:
            self._receive_odd_reply(envelope)
        elif asker is None and self.connection.turns.is_round_over():
            self.connection.work_off(self._request_later(envelope))
        else:
            self.on_request(envelope, asker or self)

    def _request_later(self, envelope: LooseEnvelope) -> Iterator[bytes | None]:
        """Handle a request in the connection's next turn: many together would hold the loop."""
        yield None
        self.on_request(envelope, self)

    def _receive_batch(self, elements: list[Raw]) -> None:
        if not elements:
            self.fail(None, InvalidRequest("Invalid request", detail="an empty batch"))
            return
        if len(elements) > MAX_BATCH:
            # A frame of a MiB has room for 500,000: 3 s of our time and 70 MB of answers.
            detail = f"a batch of more than {MAX_BATCH}"
            self.fail(None, InvalidRequest("Invalid request", detail=detail, limit=MAX_BATCH))
            return
        self.connection.work_off(self._work_off_batch(elements))

    def _work_off_batch(self, elements: list[Raw]) -> Iterator[bytes | None]:
        """Dispatch the elements of a batch, one per step: their costs differ."""
        frames = [bytes(element) for element in elements]
        batch = Batch(self, min(self.max_frame_bytes, self.connection.limits.max_unread_bytes))
        askers: list[Element] = []
        for frame in frames:
            askers.append(self._reserve_answer(frame, batch))
            yield None
        if batch.room < 0:
            detail = "the answers to this batch are larger than a frame"
            self.fail(
                None, InvalidRequest("Invalid request", rule="max_frame_bytes", detail=detail)
            )
            return
        for frame, asker in zip(frames, askers, strict=True):
            self.receive(frame, asker)
            yield None

    def _reserve_answer(self, frame: bytes, batch: Batch) -> Element:
        """Reserve room in a batch's frame for the shortest answer that an element can get."""
        if not _wants_answer(frame):
            return Element(batch, 0)
        error, receipt = len(_batch_is_full(read_id(frame))), self.shortest_answer_bytes(frame)
        size = max(error, receipt)
        batch.reserve(size)
        return Element(batch, size, can_be_short=receipt > 0)

    def _receive_odd_reply(self, envelope: LooseEnvelope) -> None:
        """Handle a reply that is an error, or whose result is not quite what was expected."""
        call = self.calls.pop(envelope.id, None) if isinstance(envelope.id, int) else None
        if call is None:
            return
        if envelope.result is UNSET or envelope.has_error:
            call.refuse(self, envelope.error)
            return
        try:
            result = self.read_result(envelope.result)
        except _UNDECODABLE:
            call.refuse(self, UNSET)
        else:
            call.settle(self, result)

    def on_violation(self, violation: ProtocolViolation) -> None:
        """Send the reason to a peer that broke the framing, and close."""
        if violation.rule not in ("goodbye", "handshake"):
            self.fail(None, InvalidRequest(violation.reason, rule=violation.rule))
        self.connection.close(violation.close_code, violation.reason)

    # To the wire

    def answer(self, request_id: RequestId, result: Any) -> None:
        if request_id is UNSET:
            return
        frame = encode(Result(request_id, result))
        if len(frame) > self.max_frame_bytes:
            self.fail(request_id, _too_large(len(frame), self.max_frame_bytes))
        else:
            self.connection.send(frame)

    def fail(self, request_id: RequestId, fault: RequestError) -> None:
        self.on_refused(fault)
        if request_id is not UNSET:
            self.connection.send(encode_failure(request_id, fault, self.max_frame_bytes))

    def charge(self) -> None:
        self.connection.charge()


class Batch:
    """Gathers the answers to a batch and sends them as one array when the last one is in.

    The array is one frame. Room for a short answer is reserved for each element before the first
    is taken; `room` is what is left, for all of them.
    """

    def __init__(self, endpoint: Endpoint[Any, Any], max_bytes: float) -> None:
        self.endpoint = endpoint
        self.room = max_bytes - len("[]") + len(",")  # the last answer is followed by none
        self._expected = 0
        self._answers: list[bytes] = []

    def reserve(self, size: int) -> None:
        """Reserve room for one answer more."""
        self._expected += 1
        self.room -= size + len(",")

    def add(self, answer: bytes) -> None:
        self._answers.append(answer)
        if len(self._answers) == self._expected:
            self.endpoint.connection.send(b"[" + b",".join(self._answers) + b"]")


class Element:
    """Waits for the answer to one element of a batch.

    An answer that can be short is made as short as there is room for. Any other is made as if it
    had a frame of its own, and replaced by an error if the batch's frame has no room for it.
    """

    __slots__ = ("_batch", "_can_be_short", "_reserved")

    out = ()

    def __init__(self, batch: Batch, reserved: int, can_be_short: bool = False) -> None:
        self._batch = batch
        self._reserved = reserved
        self._can_be_short = can_be_short

    @property
    def max_frame_bytes(self) -> float:
        return self._room if self._can_be_short else self._batch.endpoint.max_frame_bytes

    @property
    def _room(self) -> float:
        return self._batch.room + self._reserved

    def answer_encoded(self, frame: bytes) -> None:
        """Add an answer for which there is room."""
        self._batch.room -= len(frame) - self._reserved
        self._batch.add(frame)

    def answer(self, request_id: RequestId, result: Any) -> None:
        if request_id is not UNSET:
            self._answer_if_it_fits(request_id, encode(Result(request_id, result)))

    def fail(self, request_id: RequestId, fault: RequestError) -> None:
        self._batch.endpoint.on_refused(fault)
        if request_id is not UNSET:
            self._answer_if_it_fits(request_id, encode_failure(request_id, fault))

    def charge(self) -> None:
        """Ignore the charge: the clock is checked after every element anyway."""

    def _answer_if_it_fits(self, request_id: RequestId, frame: bytes) -> None:
        fits = len(frame) <= self._room
        self.answer_encoded(frame if fits else _batch_is_full(request_id))


def _batch_is_full(request_id: RequestId) -> bytes:
    return encode_failure(request_id, Busy("no room for this answer in the batch's frame"))


def _too_large(size: int, limit: float) -> RequestError:
    reason = f"the answer has {size} bytes, a frame at most {limit}; ask for less at a time"
    return InvalidParams(reason, rule="max_frame_bytes", limit=limit)


def _wants_answer(frame: bytes) -> bool:
    try:
        return decode_loose(frame).wants_answer
    except _UNDECODABLE:
        return True  # it will be told so


def _why_undecodable(problem: Exception) -> RequestError:
    """Distinguish bytes that are not JSON from JSON that is not a request."""
    if isinstance(problem, msgspec.ValidationError):
        return InvalidRequest("Invalid request", detail=str(problem))
    if isinstance(problem, UnicodeDecodeError):
        return ParseError("Parse error", detail=f"not UTF-8 (byte {problem.start})")
    if isinstance(problem, RecursionError):
        return ParseError("Parse error", detail="nested too deeply")
    return ParseError("Parse error", detail=str(problem))
