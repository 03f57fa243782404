"""What the answers of an attempt mean for mail that was handed over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import UNSET

from busd.bus.message import Outcome

if TYPE_CHECKING:
    from busd.bus.delivery import AnyAck

_NEVER_ANSWERED = (Outcome.LOST, Outcome.TIMEOUT, Outcome.STOPPING)
_LONGEST_SECONDS = 30 * 86_400.0  # until the next attempt, whatever its addressee says


class Verdict(msgspec.Struct, frozen=True):
    """An event of `mail_state`, and why."""

    event: Literal["acked", "refused", "postponed", "lost"]
    outcome: Outcome = Outcome.OK
    reason: str = ""
    retry_seconds: float | None = None  # as the addressee wants it


def verdict_of(acks: list[AnyAck], names: frozenset[str]) -> Verdict:
    """Return the verdict; `names` are the peers that answer for the address, others only observe.

    One that accepts it is enough. Else one that may take it later is enough to try again.
    """
    answers = [ack for ack in acks if ack.client_id in names] or acks
    if any(ack.success for ack in answers):
        return Verdict("acked")
    for ack in answers:
        if ack.outcome is Outcome.BUSY or ack.should_retry is True:
            seconds = _seconds_of(ack)
            if ack.outcome is Outcome.LOST:  # its place is taken by a plugin, or by the mailbox
                return Verdict("lost", ack.outcome, ack.message)
            return Verdict("postponed", ack.outcome, ack.message, seconds)
    for ack in answers:
        if ack.outcome in _NEVER_ANSWERED:
            return Verdict("lost", ack.outcome, ack.message)
    return Verdict("refused", answers[0].outcome, answers[0].message)


def _seconds_of(ack: AnyAck) -> float | None:
    """Return the pause that an addressee wants, within bounds: it may send any number."""
    if ack.retry_seconds is UNSET:
        return None
    return float(min(max(ack.retry_seconds, 0), _LONGEST_SECONDS))
