"""Mail: what a store of mailboxes keeps, its limits, and why it refuses."""

from __future__ import annotations

from typing import Annotated

import msgspec

from busd.quantities import Bytes, Count, MemoryBytes, Seconds, about

MAX_PAYLOAD_BYTES = 1024 * 1024
EXPIRED = "expired"  # the reason of dead letters that Expire made
_DAY = 86_400.0
_MIB = 1024 * 1024


class MailLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a store keeps at most. `bytes` are those of payloads."""

    box_count: Annotated[Count, about("Messages kept per address.")] = 10_000
    box_bytes: Annotated[Bytes, about("Bytes of payloads kept per address.")] = 64 * _MIB
    identity_count: Annotated[
        Count, about("Messages kept for all addresses from one sending identity.")
    ] = 250_000
    identity_bytes: Annotated[
        Bytes, about("Bytes of payloads kept for all addresses from one sending identity.")
    ] = 256 * _MIB
    total_count: Annotated[Count, about("Messages kept in all.")] = 1_000_000
    total_bytes: Annotated[Bytes, about("Bytes of payloads kept in all.")] = 1024 * _MIB
    dead_count: Annotated[
        Count, about("Dead letters kept; beyond that the oldest of who has most are deleted.")
    ] = 100_000
    dead_bytes: Annotated[
        Bytes,
        about("Bytes of dead letters kept; beyond that the oldest of who has most are deleted."),
    ] = 256 * _MIB
    known_count: Annotated[
        Count, about("Addresses and patterns remembered because a peer answered for them.")
    ] = 10_000
    key_seconds: Annotated[Seconds, about("Time for which an idempotency key is remembered.")] = (
        _DAY
    )
    key_count: Annotated[
        Count,
        about("Idempotency keys remembered; beyond that the oldest of who has most are forgotten."),
    ] = 1_000_000
    waiting_count: Annotated[
        Count, about("Messages that may wait to be written; beyond that senders are refused.")
    ] = 10_000
    waiting_bytes: Annotated[
        MemoryBytes, about("Bytes of messages that may wait to be written.")
    ] = 64 * _MIB


class Mail(msgspec.Struct, kw_only=True):
    """A message in a mailbox. The store sets `id`; ids increase, even over a restart."""

    id: int = 0
    sender: str
    address: str  # the `to` of the message, and the name of the mailbox
    message_id: str | int
    payload: bytes  # JSON as received, up to MAX_PAYLOAD_BYTES
    kept_at: float
    expires_at: float
    account: str = ""  # the sending identity, whose limits count
    idempotency_key: str = ""  # "": none
    attempts: int = 0  # those on record: see NoteAttempt
    not_before: float = 0.0  # the earliest time of the next attempt
    reason: str = ""  # of the last failure
    hops: int | None = None  # of its chain of causes, see busd.bus.hops; None: it names no cause


class Kept(msgspec.Struct, frozen=True):
    """The outcome of Keep and of Revive."""

    id: int
    is_new: bool  # False: this (sender, key) was there; the rest is about the first mail
    message_id: str | int
    outcome: bytes | None = None  # as given to Finish or SettleOne; None: not finished


class Box(msgspec.Struct, frozen=True):
    """A claim on a mailbox, and what was in it at that time."""

    address: str
    holder: str
    fence: int
    count: int
    bytes: int
    attempts: int  # on record for the first mail; 0 if there is none


class BoxSummary(msgspec.Struct, frozen=True):
    """What there is for one address."""

    address: str
    count: int
    bytes: int
    oldest: float | None  # kept_at of the first mail; None: the mailbox is empty
    dead: int
    dead_bytes: int
    holder: str  # "": not claimed


class DeadLetter(msgspec.Struct, frozen=True):
    """Mail that was given up; `mail.reason` says why."""

    mail: Mail
    buried_at: float


class DeadFilter(msgspec.Struct, frozen=True):
    """Which dead letters: all conditions hold. The default is all dead letters."""

    prefix: str = ""  # of the address
    sender: str = ""  # "": any
    buried_before: float | None = None


class KnownAddress(msgspec.Struct, frozen=True):
    """An address or a pattern that a peer has answered for."""

    address: str
    seen_at: float
    is_first_hand: bool = True  # see busd.bus.routes.is_first_hand


class Totals(msgspec.Struct, frozen=True):
    """What there is in all mailboxes, for metrics."""

    count: int = 0
    bytes: int = 0
    dead: int = 0
    dead_bytes: int = 0


# Failures


class MailFailure(msgspec.Struct, frozen=True):
    """Why an operation changed nothing."""


class KeyReused(MailFailure, frozen=True):
    """The sender used the key before, for another address or payload."""

    message_id: str | int  # of the first message


class BoxFull(MailFailure, frozen=True):
    """A limit is reached; `what` is the name of the limit in MailLimits."""

    what: str
    limit: int


class TooLarge(MailFailure, frozen=True):
    """The payload has more than MAX_PAYLOAD_BYTES."""

    limit: int = MAX_PAYLOAD_BYTES


class Held(MailFailure, frozen=True):
    """Another holder has claimed the mailbox."""

    holder: str


class NotHeld(MailFailure, frozen=True):
    """The claim has ended: released, forfeited, or replaced by a later one."""

    address: str


class NotFound(MailFailure, frozen=True):
    """There is no mail or dead letter of this id."""

    id: int


class StoreBusy(MailFailure, frozen=True):
    """Too many operations wait to be written."""

    limit: int


class StoreFailed(MailFailure, frozen=True):
    """The store could not write or read: nothing of it took effect."""

    problem: str
