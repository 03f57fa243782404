"""What became of a message: what the receipts of the bus mean for the outbox."""

from __future__ import annotations

from typing import Any

import msgspec

from busd.bus.mail_state import MailState


class AckSeen(msgspec.Struct, rename="camel"):
    """One addressee's answer."""

    success: bool = True
    message: str = ""
    should_retry: bool = False
    retry_seconds: float | None = None
    outcome: str = ""
    payload: Any = None


class MailSeen(msgspec.Struct):
    """What became of a message that was kept."""

    state: str


class ReceiptSeen(msgspec.Struct):
    """The result of `sendMessage`."""

    acks: list[AckSeen] = []
    undelivered: str = ""
    mail: MailSeen | None = None


class Outcome(msgspec.Struct, frozen=True):
    """What became of a message: accepted, to be sent again after a while, or refused."""

    is_accepted: bool
    retry_seconds: float | None = None
    reason: str = ""
    said: str = ""  # the text of a `general_response` that the addressee acked with


_GIVEN_UP = (MailState.REFUSED, MailState.DEAD, MailState.EXPIRED, MailState.PURGED)
_NOT_TAKEN = ("busy", "lost", "stopping")  # by a bus that keeps no mail


def outcome_of(receipt: ReceiptSeen, to: str) -> Outcome:
    """Return what a receipt means."""
    for ack in receipt.acks:
        if ack.success:
            return Outcome(is_accepted=True, said=_words_of(ack))
    reason = receipt.acks[0].message if receipt.acks else ""
    if receipt.mail is not None:
        is_given_up = receipt.mail.state in _GIVEN_UP
        return Outcome(not is_given_up, reason=reason or f"the message is {receipt.mail.state}")
    if receipt.undelivered == "no route":
        return Outcome(is_accepted=False, reason=f"{to} is not on the bus")
    for ack in receipt.acks:
        if ack.should_retry or ack.outcome in _NOT_TAKEN:
            return Outcome(is_accepted=False, retry_seconds=ack.retry_seconds or 1.0)
    is_at_work = any(ack.outcome == "timeout" for ack in receipt.acks)
    return Outcome(is_at_work or not receipt.acks, reason=reason)


def _words_of(ack: AckSeen) -> str:
    """Return what a `general_response` says."""
    content = ack.payload.get("content") if isinstance(ack.payload, dict) else None
    said = content.get("message") if isinstance(content, dict) else None
    return said if isinstance(said, str) else ""
