"""What travels: a message, the acks of its addressees, and what its sender hears."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field

from busd.bus.mail_state import MailState
from busd.errors import InvalidParams
from busd.rpc.envelope import RequestId, Result, encode
from busd.rpc.reading import reader_of

T = TypeVar("T")
NOTHING = Raw(b"{}")
MAX_ID_CHARACTERS = 256
_OWN_ID = "msg_" + 26 * "0"  # as long as those that the bus makes
_MANY_ACKS = 10**9  # more than any message has addressees
# Checked while it is decoded: 0.007 µs, where looking at its length afterwards costs 0.02.
MessageId = (
    Annotated[str, Meta(max_length=MAX_ID_CHARACTERS)]
    | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
)
# A JSON object that is carried byte for byte; the schema says so, the bus checks it.
Payload = Annotated[Raw, Meta(extra_json_schema={"type": "object"})]


class DeliveryOptions(msgspec.Struct, rename="camel", frozen=True):
    """The member `delivery` of `sendMessage`: how a message is kept until it is delivered."""

    durable: bool = False
    ttl_seconds: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    idempotency_key: Annotated[str, Meta(min_length=1, max_length=256)] | UnsetType = UNSET


class Message(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """The params of `sendMessage` and of `processMessage`: the same object goes in and out.

    `payload` is last so that the last byte but two of an encoded call tells what it was.
    """

    sender: str | UnsetType = field(name="from", default=UNSET)
    to: str
    message_id: MessageId | UnsetType = UNSET
    delivery: DeliveryOptions | UnsetType = UNSET  # for the bus; it does not leave it
    # What the sender was handling; for the bus only, which takes it out. "": nothing.
    caused_by: MessageId | UnsetType = UNSET
    payload: Payload


class HandedMessage(Message, rename="camel", kw_only=True, gc=False):
    """A message as an addressee gets it."""

    # 2 or more if it may have been handed over before; only for peers that asked for it.
    delivery_attempt: int | UnsetType = UNSET


class Outcome(StrEnum):
    """How one delivery ended. All but `ok` and `refused` are failures that the bus determined."""

    OK = "ok"
    REFUSED = "refused"  # by the addressee itself
    BUSY = "busy"
    TIMEOUT = "timeout"
    LOST = "lost"
    STOPPING = "stopping"
    TOO_LARGE = "too_large"
    MALFORMED = "malformed"

    @classmethod
    def _missing_(cls, value: object) -> Outcome:
        """Return `refused` for an outcome that only a later version of the bus knows."""
        return cls.REFUSED


_REASONS = {
    Outcome.BUSY: "peer is busy",
    Outcome.TIMEOUT: "no answer in time",
    Outcome.LOST: "peer left before it answered",
    Outcome.STOPPING: "the bus is stopping",
    Outcome.TOO_LARGE: "message is too large",
    Outcome.MALFORMED: "malformed answer: not the result of a processMessage",
}


class _AckMembers(msgspec.Struct, rename="camel", gc=False):
    """What all acks have; the payload is the last member, see Delivery.settle."""

    success: bool = True
    message: str = ""
    should_retry: bool | UnsetType = UNSET
    retry_seconds: int | float | UnsetType = UNSET
    client_id: str | UnsetType = UNSET


class PeerAck(_AckMembers, rename="camel", gc=False):
    """The result of `processMessage` as the bus reads it: a peer has no say in the outcome."""

    payload: Payload = field(default_factory=lambda: NOTHING)

    @property
    def outcome(self) -> Outcome:
        return Outcome.OK if self.success else Outcome.REFUSED


class Ack(_AckMembers, rename="camel", gc=False):
    """One addressee's answer: one of `sendMessage`'s acks."""

    # Set by the bus if it made the ack because the addressee gave none.
    failure: Outcome | UnsetType = field(name="outcome", default=UNSET)
    payload: Payload = field(default_factory=lambda: NOTHING)

    @classmethod
    def failed(cls, outcome: Outcome, detail: str = "") -> Ack:
        """Return the ack that stands in for one that an addressee does not give."""
        reason = _REASONS[outcome]
        return cls(False, f"{reason}: {detail}" if detail else reason, failure=outcome)

    @property
    def outcome(self) -> Outcome:
        """How the delivery ended."""
        if self.success:
            return Outcome.OK
        return Outcome.REFUSED if self.failure is UNSET else self.failure

    def read(self, kind: type[T] = dict) -> T:  # type: ignore[assignment]
        """Return the payload as `kind`, by default as a dict."""
        return msgspec.json.decode(self.payload, type=kind)


class MailReceipt(msgspec.Struct, rename="camel", gc=False):
    """What became of a message that was kept."""

    id: int
    state: MailState
    attempts: int = 0  # how often it was handed over, as far as this bus knows
    duplicate: bool | UnsetType = UNSET  # it was sent before: this is what became of the first


class Receipt(msgspec.Struct, rename="camel", gc=False):
    """The result of `sendMessage`."""

    accepted: bool
    message_id: str  # or the number that a peer sent; our own clients send strings
    acks: list[Ack]
    undelivered: str | UnsetType = UNSET  # "no route", "kept" or "retrying"
    acks_left_out: int | UnsetType = UNSET  # how many would not fit into one frame
    mail: MailReceipt | UnsetType = UNSET  # only if the message was kept

    @property
    def is_kept(self) -> bool:
        """Whether the message is on the disk of the bus, which goes on trying to deliver it."""
        return self.undelivered in ("kept", "retrying")

    @property
    def is_duplicate(self) -> bool:
        """Whether it was sent before: this is what became of the first one."""
        return self.mail is not UNSET and self.mail.duplicate is True


class _SentMessage(msgspec.Struct, rename="camel"):
    """The members of a message on which the size of its receipt depends."""

    message_id: MessageId | UnsetType = UNSET
    delivery: Raw | UnsetType = UNSET


class _SendRequest(msgspec.Struct):
    """A `sendMessage` of which only the ids are read."""

    method: Literal["sendMessage"]
    params: _SentMessage
    id: RequestId = None


def longest_short_receipt(request: bytes) -> bytes:
    """Return the longest answer to a `sendMessage` that contains no acks; b"" if it is none."""
    try:
        asked = reader_of(_SendRequest).decode(request)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return b""
    message_id: Any = asked.params.message_id
    if not message_id and message_id != 0:  # missing, or empty: the bus makes one
        message_id = _OWN_ID
    receipt = Receipt(True, message_id, [], "no route", _MANY_ACKS)
    if asked.params.delivery is not UNSET:
        receipt.mail = MailReceipt(2**63, MailState.DELIVERED, _MANY_ACKS, duplicate=True)
    return encode(Result(asked.id, receipt))


def check_message_id(text: str) -> None:
    """Raise InvalidParams for an id of our own making that no peer could send."""
    if len(text) > MAX_ID_CHARACTERS:
        raise InvalidParams(f"a message id has at most {MAX_ID_CHARACTERS} characters")


def read_ack(raw: Raw) -> PeerAck:
    """Read a peer's ack leniently: what is missing or null, or all of it, has its default."""
    return PeerAck() if bytes(raw) == b"null" else reader_of(PeerAck).decode(raw)
