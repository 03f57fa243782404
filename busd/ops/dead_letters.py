"""The methods of the operator for dead letters."""

from __future__ import annotations

from math import inf
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from busd.bus import mail_upkeep
from busd.bus.address import check_pattern
from busd.bus.mail import Kept, MailFailure
from busd.bus.mail_senders import fault_of
from busd.bus.mail_upkeep import PORTION, DeadChoice, DeadPage, Retried
from busd.bus.peer import RemotePeer
from busd.errors import InvalidParams, MalformedPattern
from busd.ops.mail_view import (
    PAGE,
    MailId,
    WaitingMail,
    answering,
    dead,
    fitting,
    mail_errors,
    mailboxes_for,
    room_of,
)
from busd.ops.running import RunningBus
from busd.rpc.endpoint import Asker
from busd.rpc.envelope import RequestId, as_many_as_fit, encode
from busd.rpc.methods import DEFERRED, Methods

_ANY = "*"
_Portion = Annotated[int, Meta(ge=1, le=PORTION)]


class ListDeadParams(msgspec.Struct):
    """Patterns for destination and sender."""

    to: str = _ANY
    sender: str = msgspec.field(name="from", default=_ANY)
    after: MailId = 0
    limit: _Portion = PAGE


class DeadLetters(msgspec.Struct):
    """Part of the dead letters; `after` is where the next part begins."""

    letters: list[WaitingMail]
    after: int
    more: bool


class DeadId(msgspec.Struct):
    id: MailId


class ChooseDeadParams(msgspec.Struct):
    """Dead letters by their ids, by patterns, or `all`.

    `before` is that of the first answer: letters that die again meanwhile are not chosen again.
    """

    ids: Annotated[list[MailId], Meta(max_length=PORTION)] | UnsetType = UNSET
    to: str | UnsetType = UNSET
    sender: str | UnsetType = msgspec.field(name="from", default=UNSET)
    all: bool = False
    after: MailId = 0
    before: float | UnsetType = UNSET  # in seconds since 1970
    limit: _Portion = PORTION


class RetriedLetter(msgspec.Struct, rename="camel"):
    """What became of one letter: it has a new id, or an error."""

    id: int
    message_id: str | int
    to: str
    new_id: int | UnsetType = UNSET
    error: str | UnsetType = UNSET


class RetriedLetters(msgspec.Struct):
    retried: int
    failed: int
    letters: list[RetriedLetter]  # as many as fit into a frame
    missing: list[int]  # ids of which there is no letter
    after: int
    before: float
    more: bool


class DroppedLetters(msgspec.Struct):
    dropped: int
    missing: list[int]  # ids of which there is no letter
    after: int
    before: float
    more: bool


def register_dead_letters(table: Methods[RemotePeer], daemon: RunningBus) -> None:
    """Add the methods to the table."""

    @table.register(
        "bus.listDead", ListDeadParams, DeadLetters, errors=mail_errors(MalformedPattern)
    )
    def list_dead(
        peer: RemotePeer, params: ListDeadParams, asker: Asker, request_id: RequestId, /
    ) -> object:
        """List dead letters, a portion at a time, in the order in which they were kept."""
        mailboxes = mailboxes_for(daemon, peer)
        choice = _choice(None, params.to, params.sender, inf)

        def answer(page: DeadPage) -> DeadLetters:
            shown = fitting([dead(each) for each in page.letters], [], room_of(asker))
            is_part = len(shown) < len(page.letters)
            after = shown[-1].id if is_part else page.after
            return DeadLetters(shown, after, more=is_part or page.more)

        done = answering(asker, request_id, answer)
        mail_upkeep.find_dead(mailboxes, choice, params.after, params.limit, done)
        return DEFERRED

    @table.register("bus.showDead", DeadId, WaitingMail, errors=mail_errors(InvalidParams))
    def show_dead(
        peer: RemotePeer, params: DeadId, asker: Asker, request_id: RequestId, /
    ) -> object:
        """Return a dead letter with its payload, if that fits into a frame."""
        mailboxes = mailboxes_for(daemon, peer)

        def answer(page: DeadPage) -> WaitingMail:
            if not page.letters:
                raise InvalidParams(f"there is no dead letter {params.id}", member="id")
            [letter] = page.letters
            [shown] = fitting([dead(letter)], [letter.mail.payload], room_of(asker))
            return shown

        choice, done = DeadChoice([params.id]), answering(asker, request_id, answer)
        mail_upkeep.find_dead(mailboxes, choice, 0, 1, done)
        return DEFERRED

    @table.register(
        "bus.retryDead", ChooseDeadParams, RetriedLetters, errors=mail_errors(MalformedPattern)
    )
    def retry_dead(
        peer: RemotePeer, params: ChooseDeadParams, asker: Asker, request_id: RequestId, /
    ) -> object:
        """Deliver a portion of the dead letters again, each at the end of its mailbox."""
        mailboxes = mailboxes_for(daemon, peer)
        choice = _chosen(params, mailboxes.wall_time())
        page = DeadPage([])

        def retry(found: DeadPage | MailFailure) -> None:
            nonlocal page
            if isinstance(found, MailFailure):
                asker.fail(request_id, fault_of(found, ""))
                return
            page = found
            mail_upkeep.retry(mailboxes, page.letters, answering(asker, request_id, answer))

        def answer(retried: list[Retried]) -> RetriedLetters:
            letters = [_retried(each) for each in retried]
            good = sum(letter.error is UNSET for letter in letters)
            letters.sort(key=lambda letter: letter.error is UNSET)  # if not all fit: the failed
            shown = as_many_as_fit(letters, room_of(asker) - len(encode(page.missing)))
            bad = len(letters) - good
            return RetriedLetters(
                good, bad, shown, page.missing, page.after, choice.before, page.more
            )

        mail_upkeep.find_dead(mailboxes, choice, params.after, params.limit, retry)
        return DEFERRED

    @table.register(
        "bus.dropDead", ChooseDeadParams, DroppedLetters, errors=mail_errors(MalformedPattern)
    )
    def drop_dead(
        peer: RemotePeer, params: ChooseDeadParams, asker: Asker, request_id: RequestId, /
    ) -> object:
        """Delete a portion of the dead letters for good."""
        mailboxes = mailboxes_for(daemon, peer)
        choice = _chosen(params, mailboxes.wall_time())
        page = DeadPage([])

        def drop(found: DeadPage | MailFailure) -> None:
            nonlocal page
            if isinstance(found, MailFailure):
                asker.fail(request_id, fault_of(found, ""))
                return
            page = found
            mail_upkeep.drop(mailboxes, page.letters, answering(asker, request_id, answer))

        def answer(count: int) -> DroppedLetters:
            return DroppedLetters(count, page.missing, page.after, choice.before, page.more)

        mail_upkeep.find_dead(mailboxes, choice, params.after, params.limit, drop)
        return DEFERRED


def _chosen(params: ChooseDeadParams, now: float) -> DeadChoice:
    by_pattern = params.to is not UNSET or params.sender is not UNSET
    if (params.ids is not UNSET) + by_pattern + params.all != 1:
        raise InvalidParams("give ids, or patterns (to, from), or all", member="ids")
    ids = None if params.ids is UNSET else params.ids
    to = _ANY if params.to is UNSET else params.to
    sender = _ANY if params.sender is UNSET else params.sender
    return _choice(ids, to, sender, now if params.before is UNSET else params.before)


def _choice(ids: list[int] | None, to: str, sender: str, before: float) -> DeadChoice:
    check_pattern(to)
    check_pattern(sender)
    return DeadChoice(ids, to, sender, before)


def _retried(retried: Retried) -> RetriedLetter:
    mail, outcome = retried.letter.mail, retried.outcome
    shown = RetriedLetter(mail.id, mail.message_id, mail.address)
    if isinstance(outcome, Kept):
        shown.new_id = outcome.id
    else:
        shown.error = fault_of(outcome, mail.address).message
    return shown
