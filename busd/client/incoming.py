"""A received message, and its answer."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, Raw

from busd.bus.message import NOTHING, Ack, HandedMessage
from busd.errors import Refuse
from busd.rpc.envelope import RequestId, encode
from busd.rpc.reading import reader_of

if TYPE_CHECKING:
    from busd.client.client import Client
    from busd.client.line import Line

T = TypeVar("T")


class _Typed(msgspec.Struct):
    type: str = ""


_decode_type = reader_of(_Typed).decode
_decode_raw = msgspec.json.Decoder(Raw).decode


class Incoming:
    """A received message; it needs exactly one answer.

    Outside a handler, answer it with `reply` or `fail`; in a handler, return the answer.
    """

    def __init__(
        self, message: HandedMessage, line: Line, request_id: RequestId, client: Client
    ) -> None:
        self._message = message
        self._line = line
        self._request_id = request_id
        self._client = client
        self.is_answered: bool = request_id is UNSET

    def __repr__(self) -> str:
        return f"<Incoming {self.message_id} from {self.sender} to {self.to}>"

    @property
    def sender(self) -> str:
        return str(self._message.sender)

    @property
    def to(self) -> str:
        return self._message.to

    @property
    def message_id(self) -> str:
        return str(self._message.message_id)

    @property
    def delivery_attempt(self) -> int:
        """How often the bus may have handed the message over, this time included."""
        attempt = self._message.delivery_attempt
        return 1 if attempt is UNSET else max(attempt, 1)

    @property
    def is_redelivery(self) -> bool:
        """Whether we, or somebody before us, may have received the message already."""
        return self.delivery_attempt > 1

    @property
    def raw(self) -> Raw:
        """The payload, byte for byte as sent."""
        return self._message.payload

    @cached_property
    def payload(self) -> Any:
        """The payload as dicts and lists."""
        return msgspec.json.decode(self.raw)

    @property
    def type(self) -> str:
        """The payload's `type`, or "" if it has none."""
        try:
            return _decode_type(self._message.payload).type
        except (msgspec.MsgspecError, RecursionError):
            return ""

    def read(self, kind: builtins.type[T]) -> T:
        """Return the payload as `kind`; raise Refuse with the name of an invalid member."""
        try:
            return reader_of(kind).decode(self.raw)
        except msgspec.ValidationError as problem:
            raise Refuse(f"payload: {problem}") from None

    async def reply(self, payload: Any = None) -> bool:
        """Ack the message; return False if its connection is lost."""
        return self.answer_nowait(ack_of(payload))

    async def fail(self, reason: str, *, retry_seconds: float | None = None) -> bool:
        """Send a failed ack, with the time after which a retry may help."""
        return self.answer_nowait(failed_ack(reason, retry_seconds))

    def answer_nowait(self, ack: Ack) -> bool:
        if self.is_answered:
            raise RuntimeError(f"{self.message_id} is answered already")
        self.is_answered = True
        if not self._line.is_open:
            return False
        self._line.answer(self._request_id, ack)
        self._client.caller.flush_soon()
        return True


class Messages:
    """An iterator over messages; not a generator, which trio requires to be closed."""

    def __init__(self, take: Callable[[], Awaitable[Incoming]]) -> None:
        self._take = take
        self._last: Incoming | None = None

    def __aiter__(self) -> Messages:
        return self

    async def __anext__(self) -> Incoming:
        if self._last is not None and not self._last.is_answered:
            await self._last.reply()
        self._last = await self._take()
        return self._last


def ack_of(payload: Any) -> Ack:
    """Return the ack with a handler's result."""
    if isinstance(payload, Ack):
        return payload
    if payload is None:
        return Ack()
    return Ack(payload=encode_payload(payload))


def failed_ack(reason: str, retry_seconds: float | None = None) -> Ack:
    ack = Ack(False, reason)
    if retry_seconds is not None:
        ack.should_retry, ack.retry_seconds = True, retry_seconds
    return ack


def encode_payload(payload: Any) -> Raw:
    """Return the bytes of a payload; raise TypeError unless it is a JSON object."""
    if payload is None:
        return NOTHING
    encoded = _checked(payload) if isinstance(payload, Raw) else encode(payload)
    if encoded[:1] != b"{":
        raise TypeError(f"a payload is an object (dict or struct), not {type(payload).__name__}")
    return Raw(encoded)


def _checked(payload: Raw) -> bytes:
    """Return the bytes if they are valid JSON; the bus could not answer an invalid frame."""
    encoded = bytes(payload)
    try:
        if not encoded.isascii():
            encoded.decode()
        return bytes(_decode_raw(encoded))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise TypeError(f"a payload is JSON: {problem}") from None
