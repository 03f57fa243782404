"""What travels: a message, the acks of its addressees, and what its sender hears."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field

from busd.errors import InvalidParams
from busd.rpc.reading import reader_of

T = TypeVar("T")
NOTHING = Raw(b"{}")
MAX_ID_CHARACTERS = 256
# Checked while it is decoded: 0.007 µs, where looking at its length afterwards costs 0.02.
MessageId = (
    Annotated[str, Meta(max_length=MAX_ID_CHARACTERS)]
    | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
)
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
        """Return the payload as `kind`, by default as a dict."""
        return msgspec.json.decode(self.payload, type=kind)


class AckMembers(msgspec.Struct, rename="camel"):
    """What a peer may say in an ack; which peer it was is for the bus to say."""

    success: bool = True
    message: str = ""
    should_retry: bool | UnsetType = UNSET
    retry_seconds: int | float | UnsetType = UNSET
    payload: Raw = NOTHING


class Receipt(msgspec.Struct, rename="camel", gc=False):
    """The result of `sendMessage`."""

    accepted: bool
    message_id: str  # or the number that a peer sent; our own clients send strings
    acks: list[Ack]
    undelivered: str | UnsetType = UNSET
    acks_left_out: int | UnsetType = UNSET  # how many would not fit into one frame


def check_message_id(text: str) -> None:
    """Raise InvalidParams for an id of our own making that no peer could send."""
    if len(text) > MAX_ID_CHARACTERS:
        raise InvalidParams(f"a message id has at most {MAX_ID_CHARACTERS} characters")


def read_ack(raw: Raw) -> Ack:
    """Read an ack leniently: what is missing or null, or all of it, has its default."""
    if bytes(raw) == b"null":
        return Ack()
    said = reader_of(AckMembers).decode(raw)
    return Ack(
        success=said.success,
        message=said.message,
        should_retry=said.should_retry,
        retry_seconds=said.retry_seconds,
        payload=said.payload,
    )
