"""Mail as operators see it, and what the methods that show it share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from busd.bus.mail import DeadLetter, Mail, MailFailure
from busd.bus.mail_senders import fault_of
from busd.bus.mail_state import MailState
from busd.bus.mailboxes import Mailboxes
from busd.bus.message import Payload
from busd.bus.peer import RemotePeer
from busd.errors import AccessRefused, InvalidParams, MailFailed
from busd.ops.control import require_admin
from busd.ops.running import RunningBus
from busd.rpc.endpoint import Asker
from busd.rpc.envelope import ENVELOPE_BYTES, RequestId, as_many_as_fit

T = TypeVar("T")
PAGE = 100
_MAX_PEERS = 10  # named of those who answer for an address
_MAX_REASON_CHARACTERS = 1_000
_LAST_SECOND = 253_402_300_799.0  # the end of the year 9999
MailId = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class WaitingMail(msgspec.Struct, rename="camel"):
    """A message in a mailbox, or a dead letter."""

    id: int
    message_id: str | int
    sender: str = msgspec.field(name="from")
    to: str
    state: MailState
    attempts: int
    kept_at: str
    expires_at: str
    bytes: int
    reason: str  # of the last failure
    next_attempt: str | UnsetType = UNSET
    buried_at: str | UnsetType = UNSET
    payload: Payload | UnsetType = UNSET


# Asking


def mail_errors(kind: type[InvalidParams]) -> tuple[type[Any], ...]:
    return (AccessRefused, kind, MailFailed)


def mailboxes_for(daemon: RunningBus, peer: RemotePeer) -> Mailboxes:
    require_admin(peer)
    return daemon.bus.find_mailboxes()


# Answering


def answering(
    asker: Asker, request_id: RequestId, make: Callable[[T], object]
) -> Callable[[T | MailFailure], None]:
    """Return a function that answers with what `make` makes of an outcome."""

    def done(outcome: T | MailFailure) -> None:
        if isinstance(outcome, MailFailure):
            asker.fail(request_id, fault_of(outcome, ""))
            return
        try:
            result = make(outcome)
        except InvalidParams as fault:
            asker.fail(request_id, fault)
            return
        asker.answer(request_id, result)

    return done


def room_of(asker: Asker) -> float:
    return asker.max_frame_bytes - ENVELOPE_BYTES


def fitting(shown: list[WaitingMail], payloads: list[bytes], room: float) -> list[WaitingMail]:
    """Return as many as fit; the first one without its payload if that is too long."""
    for mail, payload in zip(shown, payloads, strict=False):
        mail.payload = Raw(payload)
    fitting = as_many_as_fit(shown, room)
    if shown and not fitting:
        shown[0].payload = UNSET
        fitting = as_many_as_fit(shown[:1], room)
    check_progress(shown, fitting)
    return fitting


def check_progress(found: list[Any], shown: list[Any]) -> None:
    """Raise InvalidParams if not even one fits: who asks for the next page would ask for ever."""
    if found and not shown:
        reason = "the frames of this connection are too small for the answer"
        raise InvalidParams(reason, rule="max_frame_bytes")


# Shapes


def waiting(mailboxes: Mailboxes, mail: Mail) -> WaitingMail:
    """Return a message as it is now: what was handed over is known only in memory."""
    box = mailboxes.boxes.get(mail.address)
    item = None if box is None else box.in_flight.get(mail.id)
    is_postponed = mail.not_before > mailboxes.wall_time()
    if item is not None:
        state = item.state
    elif is_postponed or (mail.attempts and mail.reason):
        state = MailState.RETRYING
    else:
        state = MailState.UNKNOWN if mail.attempts else MailState.KEPT
    shown = _shown(mail, state)
    if item is not None:
        shown.attempts = max(item.made, 1)
    elif is_postponed:
        shown.next_attempt = time_text(mail.not_before)
    return shown


def dead(letter: DeadLetter) -> WaitingMail:
    shown = _shown(letter.mail, MailState.DEAD)
    shown.buried_at = time_text(letter.buried_at)
    return shown


def _shown(mail: Mail, state: MailState) -> WaitingMail:
    return WaitingMail(
        id=mail.id,
        message_id=mail.message_id,
        sender=mail.sender,
        to=mail.address,
        state=state,
        attempts=mail.attempts,
        kept_at=time_text(mail.kept_at),
        expires_at=time_text(mail.expires_at),
        bytes=len(mail.payload),
        reason=mail.reason[:_MAX_REASON_CHARACTERS],
    )


def answered_by(mailboxes: Mailboxes, address: str) -> list[str]:
    names = {peer.name for peer in mailboxes.bus.routes.answering(address)}
    return sorted(names)[:_MAX_PEERS]


def time_text(seconds: float) -> str:
    """Return a time in seconds since 1970 as text, within the years that text has."""
    moment = datetime.fromtimestamp(min(max(seconds, 0.0), _LAST_SECOND), UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
