"""The methods of the operator for mailboxes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from busd.bus import mail_upkeep
from busd.bus.address import check_address
from busd.bus.mail import BoxSummary, Mail
from busd.bus.mail_store import Peek, Survey
from busd.bus.mail_upkeep import may_be_more
from busd.bus.mailboxes import Mailboxes
from busd.bus.peer import RemotePeer
from busd.errors import InvalidParams, MalformedAddress
from busd.ops.mail_view import (
    PAGE,
    MailId,
    WaitingMail,
    answered_by,
    answering,
    check_progress,
    fitting,
    mail_errors,
    mailboxes_for,
    room_of,
    time_text,
    waiting,
)
from busd.ops.running import RunningBus
from busd.rpc.endpoint import Asker
from busd.rpc.envelope import RequestId, as_many_as_fit
from busd.rpc.methods import DEFERRED, Methods

_PEEK_BYTES = 4 * 1024 * 1024
_Limit = Annotated[int, Meta(ge=1, le=1_000)]


class ListMailboxesParams(msgspec.Struct):
    prefix: str = ""
    after: str = ""  # the address of the last one already seen
    limit: _Limit = PAGE


class MailboxSummary(msgspec.Struct, rename="camel"):
    address: str
    count: int
    bytes: int  # of payloads
    oldest: str | None  # when its first message was kept
    dead: int
    dead_bytes: int
    answered_by: list[str]  # peers that are here and answer for the address


class MailboxSummaries(msgspec.Struct):
    mailboxes: list[MailboxSummary]
    more: bool = False


class ShowMailboxParams(msgspec.Struct):
    address: str
    after: MailId = 0  # the id of the last message already seen
    limit: _Limit = PAGE
    payloads: bool = False


class MailboxContent(msgspec.Struct, rename="camel"):
    address: str
    answered_by: list[str]
    messages: list[WaitingMail]
    more: bool = False


class MailboxAddress(msgspec.Struct):
    address: str


class Purged(msgspec.Struct):
    purged: int


def register_mailboxes(table: Methods[RemotePeer], daemon: RunningBus) -> None:
    """Add the methods to the table."""

    @table.register(
        "bus.listMailboxes",
        ListMailboxesParams,
        MailboxSummaries,
        errors=mail_errors(InvalidParams),
    )
    def list_mailboxes(
        peer: RemotePeer, params: ListMailboxesParams, asker: Asker, request_id: RequestId, /
    ) -> object:
        """List the addresses that have mail or dead letters, in alphabetical order."""
        mailboxes = mailboxes_for(daemon, peer)

        def answer(found: list[BoxSummary]) -> MailboxSummaries:
            shown = as_many_as_fit([_summary(mailboxes, each) for each in found], room_of(asker))
            check_progress(found, shown)
            is_part = len(shown) < len(found) or len(found) == params.limit
            return MailboxSummaries(shown, more=is_part)

        operation = Survey(params.prefix, params.after, params.limit)
        mailboxes.submit(operation, answering(asker, request_id, answer))
        return DEFERRED

    @table.register(
        "bus.showMailbox", ShowMailboxParams, MailboxContent, errors=mail_errors(MalformedAddress)
    )
    def show_mailbox(
        peer: RemotePeer, params: ShowMailboxParams, asker: Asker, request_id: RequestId, /
    ) -> object:
        """Return the messages in a mailbox, in the order in which they are delivered."""
        mailboxes = mailboxes_for(daemon, peer)
        check_address(params.address)

        def answer(found: list[Mail]) -> MailboxContent:
            shown = fitting(
                [waiting(mailboxes, mail) for mail in found],
                [mail.payload for mail in found] if params.payloads else [],
                room_of(asker),
            )
            content = MailboxContent(params.address, answered_by(mailboxes, params.address), shown)
            is_part = len(shown) < len(found)
            size = sum(len(mail.payload) for mail in found)
            content.more = is_part or may_be_more(len(found), size, params.limit, _PEEK_BYTES)
            return content

        operation = Peek(params.address, params.after, params.limit, _PEEK_BYTES)
        mailboxes.submit(operation, answering(asker, request_id, answer))
        return DEFERRED

    @table.register(
        "bus.purgeMailbox", MailboxAddress, Purged, errors=mail_errors(MalformedAddress)
    )
    def purge_mailbox(
        peer: RemotePeer, params: MailboxAddress, asker: Asker, request_id: RequestId, /
    ) -> object:
        """Delete all messages of a mailbox; return their number."""
        mailboxes = mailboxes_for(daemon, peer)
        check_address(params.address)
        done = answering(asker, request_id, Purged)
        mail_upkeep.purge(mailboxes, params.address, done)
        return DEFERRED


def _summary(mailboxes: Mailboxes, box: BoxSummary) -> MailboxSummary:
    oldest = None if box.oldest is None else time_text(box.oldest)
    names = answered_by(mailboxes, box.address)
    counts = box.count, box.bytes, oldest, box.dead, box.dead_bytes
    return MailboxSummary(box.address, *counts, names)
