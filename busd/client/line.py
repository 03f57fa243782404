"""A client's line to the bus: one connection, from its start until it is lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import Any

import anyio
import msgspec
from msgspec import UNSET, Raw, UnsetType

from busd.bus.message import Ack, HandedMessage
from busd.errors import (
    BusdError,
    CallRefused,
    ConnectionLost,
    InvalidRequest,
    MethodNotFound,
    ProtocolViolation,
)
from busd.rpc.endpoint import Asker, Endpoint
from busd.rpc.envelope import Call, Envelope, LooseEnvelope, RequestId, Result, encode, read_error
from busd.wire.connection import Connection
from busd.wire.driver import Promise, promise_maker

log = logging.getLogger("busd.client")

TakeMessage = Callable[[HandedMessage, "Line", RequestId], None]
_call_ids = count(1)


class PendingCall:
    """A call of ours until it is answered, refused, lost or timed out."""

    __slots__ = ("_done", "deadline", "error", "result", "what")

    def __init__(self, what: str, deadline: float, done: Promise) -> None:
        self.what = what
        self.deadline = deadline
        self.result: Raw | None = None
        self.error: BusdError | None = None
        self._done = done

    def settle(self, line: Line, result: Raw) -> None:
        self.result = result
        if not self._done.done():
            self._done.set_result(None)

    def refuse(self, line: Line, error: Raw | UnsetType) -> None:
        body = read_error(Raw(b"{}") if error is UNSET else error)
        data = None if body.data is UNSET else msgspec.json.decode(body.data)
        self.fail(CallRefused(body.code, body.message, data))

    def fail(self, error: BusdError) -> None:
        self.error = error
        if not self._done.done():
            self._done.set_result(None)

    @property
    def is_done(self) -> bool:
        return self._done.done()

    async def wait(self) -> Raw:
        await self._done
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result


class Line(Endpoint[HandedMessage, Raw]):
    """The JSON-RPC endpoint of a client, over one connection."""

    __slots__ = (
        "_last_sent",
        "_make_promise",
        "_take",
        "gone",
        "has_abandoned",
        "lost",
        "reason",
    )

    hot_method = "processMessage"
    decode = staticmethod(msgspec.json.Decoder(Envelope[HandedMessage, Raw]).decode)

    def __init__(self, connection: Connection, take: TakeMessage) -> None:
        super().__init__(connection)
        self.lost = anyio.Event()  # no more input or output
        self.gone = anyio.Event()  # the socket is closed, too
        self.reason = ""
        self.has_abandoned = False  # the bus may still answer a call that nobody awaits
        self._take = take
        self._make_promise = promise_maker()
        self._last_sent = 0  # the highest call id that was written out

    @property
    def is_open(self) -> bool:
        return not self.connection.is_closed

    def call(self, method: str, params: Any, what: str, deadline: float) -> tuple[int, PendingCall]:
        """Queue a call; it is written with the next flush."""
        call_id = next(_call_ids)
        pending = PendingCall(what, deadline, self._make_promise())
        if not self.is_open:
            pending.fail(ConnectionLost(what, maybe_delivered=False))
            return call_id, pending
        frame = encode(Call(call_id, method, params))
        if len(frame) > self.max_frame_bytes:
            # The bus would close the connection, and all other calls would be lost with it.
            rule = {"rule": "max_frame_bytes"}
            pending.fail(CallRefused(InvalidRequest.code, self._too_long, rule))
            return call_id, pending
        self.calls[call_id] = pending
        self.connection.send(frame)
        return call_id, pending

    def answer(self, request_id: RequestId, result: Any) -> None:
        """Answer the bus; send a failed ack instead of an answer that is too long."""
        frame = encode(Result(request_id, result))
        if len(frame) > self.max_frame_bytes:
            frame = encode(Result(request_id, Ack(False, f"the answer is a {self._too_long}")))
        self.connection.send(frame)

    @property
    def _too_long(self) -> str:
        return f"frame over {self.max_frame_bytes} bytes"

    def note_flushed(self) -> None:
        """Record that all calls so far were written out and may have been delivered."""
        if self.calls:
            self._last_sent = next(reversed(self.calls))

    def on_hot(self, params: HandedMessage, asker: Asker, request_id: RequestId) -> None:
        self._take(params, self, request_id)

    def on_request(self, envelope: LooseEnvelope, asker: Asker) -> None:
        asker.fail(envelope.id, MethodNotFound("Method not found", detail=str(envelope.method)))

    def read_result(self, raw: Raw) -> Raw:
        return raw

    def on_violation(self, violation: ProtocolViolation) -> None:
        self.reason = violation.reason
        self.close(violation.close_code)

    def on_end(self) -> None:
        self.close()

    def close(self, code: int = 1000) -> None:
        """Send pending frames, then close."""
        self.note_flushed()
        self.connection.close(code)

    def on_flushed_after_end(self) -> None: ...

    def on_fault(self) -> None:
        log.exception("a message from the bus could not be taken")

    def on_lost(self, reason: str) -> None:
        """Fail every pending call; each error tells whether its request may be sent again."""
        self.reason = self.reason or reason
        calls, self.calls = self.calls, {}
        for call_id, pending in calls.items():
            maybe = call_id <= self._last_sent
            pending.fail(ConnectionLost(pending.what, maybe_delivered=maybe))
        self.lost.set()
