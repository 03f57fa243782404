"""What operators do with mail: look into mailboxes, purge them, retry and drop dead letters.

Whatever may be much is done in portions, so that 100,000 dead letters hold up nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import msgspec
import structlog

from busd.bus.address import has_wildcard, split_glob
from busd.bus.mail import MAX_PAYLOAD_BYTES, DeadFilter, DeadLetter, Kept, MailFailure
from busd.bus.mail_policy import matcher
from busd.bus.mail_store import DropDead, ListDead, Purge
from busd.bus.mailboxes import Mailboxes

log = structlog.get_logger("busd.bus")

PORTION = 500
_PORTION_BYTES = 4 * 1024 * 1024


class DeadChoice(msgspec.Struct, frozen=True):
    """Which dead letters: those of the ids if given, otherwise those that both patterns match."""

    ids: list[int] | None = None
    to: str = "*"
    sender: str = "*"
    before: float = inf  # they were buried before this time


class DeadPage(msgspec.Struct):
    """Dead letters that were chosen out of one portion."""

    letters: list[DeadLetter]
    after: int = 0  # the last one that was looked at
    more: bool = False  # there may be more behind it
    missing: list[int] = []  # ids of which there is no letter


class Retried(msgspec.Struct):
    """What became of a dead letter that was to be retried."""

    letter: DeadLetter
    outcome: Kept | MailFailure


def purge(mailboxes: Mailboxes, address: str, done: Callable[[int | MailFailure], None]) -> None:
    """Delete all mail of an address; call `done` with the number."""
    _purge(mailboxes, address, 0, done)


def _purge(
    mailboxes: Mailboxes, address: str, count: int, done: Callable[[int | MailFailure], None]
) -> None:
    def on_purged(outcome: Any) -> None:  # list[Mail] or MailFailure
        if isinstance(outcome, MailFailure):
            done(outcome)
            return
        mailboxes.on_gone(outcome, "purged", "deleted by an operator")
        if len(outcome) == PORTION:
            _purge(mailboxes, address, count + PORTION, done)
        else:
            log.info("mail.purged", to=address, count=count + len(outcome))
            done(count + len(outcome))

    mailboxes.submit(Purge(address, PORTION), on_purged)


def find_dead(
    mailboxes: Mailboxes,
    choice: DeadChoice,
    after: int,
    limit: int,
    done: Callable[[DeadPage | MailFailure], None],
) -> None:
    """Call `done` with the dead letters that are chosen out of the next `limit` ones."""
    if choice.ids is not None:
        _find_by_id(mailboxes, sorted(set(choice.ids)), done)
        return
    to, sender = matcher([choice.to]), matcher([choice.sender])

    def on_listed(outcome: Any) -> None:  # list[DeadLetter] or MailFailure
        if isinstance(outcome, MailFailure):
            done(outcome)
            return
        letters = [each for each in outcome if to(each.mail.address) and sender(each.mail.sender)]
        last = outcome[-1].mail.id if outcome else after
        size = sum(len(each.mail.payload) for each in outcome)
        done(DeadPage(letters, last, may_be_more(len(outcome), size, limit, _PORTION_BYTES)))

    exact = "" if has_wildcard(choice.sender) else choice.sender
    chosen = DeadFilter(_literal_start(choice.to), exact, choice.before)
    mailboxes.submit(ListDead(chosen, after, limit, _PORTION_BYTES), on_listed)


def may_be_more(count: int, size: int, limit: int, max_bytes: int) -> bool:
    """Return whether something may follow what was read within these limits."""
    return count >= limit or size + MAX_PAYLOAD_BYTES > max_bytes


def _find_by_id(
    mailboxes: Mailboxes, ids: list[int], done: Callable[[DeadPage | MailFailure], None]
) -> None:
    outcomes: dict[int, Any] = {}

    def on_found(number: int, outcome: Any) -> None:  # list[DeadLetter] or MailFailure
        outcomes[number] = outcome
        if len(outcomes) == len(ids):
            done(_page_of(outcomes))

    if not ids:
        done(DeadPage([]))
    for number in ids:
        mailboxes.submit(ListDead(after=number - 1, limit=1), partial(on_found, number))


def _page_of(outcomes: dict[int, Any]) -> DeadPage | MailFailure:
    page = DeadPage([], missing=[])
    for number, outcome in outcomes.items():
        if isinstance(outcome, MailFailure):
            return outcome
        if outcome and outcome[0].mail.id == number:
            page.letters.append(outcome[0])
        else:
            page.missing.append(number)
    return page


def retry(
    mailboxes: Mailboxes, letters: list[DeadLetter], done: Callable[[list[Retried]], None]
) -> None:
    """Move dead letters to the end of their mailboxes; call `done` with what became of each."""
    retried: list[Retried] = []

    def on_revived(letter: DeadLetter, outcome: Kept | MailFailure) -> None:
        retried.append(Retried(letter, outcome))
        if len(retried) == len(letters):
            done(retried)

    if not letters:
        done(retried)
    for letter in letters:
        mailboxes.revive(letter, partial(on_revived, letter))


def drop(
    mailboxes: Mailboxes, letters: list[DeadLetter], done: Callable[[int | MailFailure], None]
) -> None:
    """Delete dead letters; call `done` with the number."""
    ids = [letter.mail.id for letter in letters]
    mailboxes.submit(DropDead(ids), done)


def _literal_start(pattern: str) -> str:
    """Return what every address that a pattern matches begins with."""
    if not has_wildcard(pattern):
        return pattern
    start = ""
    for piece in split_glob(pattern):
        if piece[0] in "*?[":
            break
        start += piece
    return start
