"""What travels: a message, the acks of its addressees, and what its sender hears."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field

from busd.errors import InvalidParams

T = TypeVar("T")
NOTHING = Raw(b"{}")
MAX_ID_CHARACTERS = 256
# Checked while it is decoded: 0.007 µs, where looking at its length afterwards costs 0.02.
MessageId = Annotated[str, Meta(max_length=MAX_ID_CHARACTERS)]
# A JSON object that is carried byte for byte; the schema says so, the bus checks it.
Payload = Annotated[Raw, Meta(extra_json_schema={"type": "object"})]


class Message(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """The params of `sendMessage` and of `processMessage`: the same object goes in and out.

    `payload` is last so that the last byte but two of an encoded call tells what it was.
    """

    sender: str | UnsetType = field(name="from", default=UNSET)
    to: str
    message_id: MessageId | UnsetType = UNSET
    payload: Payload


class Ack(msgspec.Struct, rename="camel", gc=False):
    """One addressee's answer: the result of `processMessage`, and one of `sendMessage`'s acks."""

    success: bool = True
    message: str = ""
    should_retry: bool | UnsetType = UNSET
    retry_seconds: int | float | UnsetType = UNSET
    client_id: str | UnsetType = UNSET
    payload: Payload = field(default_factory=lambda: NOTHING)  # last: see Delivery.settle

    def read(self, kind: type[T] = dict) -> T:  # type: ignore[assignment]
        """Give the payload as `kind`, by default as a dict."""
        return msgspec.json.decode(self.payload, type=kind)


class LooseAck(msgspec.Struct, rename="camel"):
    """An ack with nulls where its members have a default."""

    success: bool | None = None
    message: str | None = None
    payload: Raw = NOTHING
    should_retry: bool | None = None
    retry_seconds: int | float | None = None


class Receipt(msgspec.Struct, rename="camel", gc=False):
    """The result of `sendMessage`."""

    accepted: bool
    message_id: str
    acks: list[Ack]
    undelivered: str | UnsetType = UNSET


def check_message_id(text: str) -> None:
    """Raise InvalidParams for an id of our own making that no peer could send."""
    if len(text) > MAX_ID_CHARACTERS:
        raise InvalidParams(f"a message id has at most {MAX_ID_CHARACTERS} characters")


decode_loose_ack = msgspec.json.Decoder(LooseAck | None).decode


def read_ack(raw: Raw) -> Ack:
    """Read an ack leniently: what is missing or null has its default."""
    loose = decode_loose_ack(raw)
    if loose is None:
        return Ack()
    return Ack(
        success=loose.success is not False,
        message=loose.message or "",
        payload=NOTHING if bytes(loose.payload) == b"null" else loose.payload,
        should_retry=UNSET if loose.should_retry is None else loose.should_retry,
        retry_seconds=UNSET if loose.retry_seconds is None else loose.retry_seconds,
    )
