"""A burial: all mail that an address has at one moment becomes dead letters, page by page."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from busd.bus.mail import Mail, MailFailure
from busd.bus.mail_store import Read
from busd.bus.message import Ack

if TYPE_CHECKING:
    from busd.bus.mailbox import Mailbox

_PAGE = 100
_PAGE_BYTES = 4 * 1024 * 1024


class Burial:
    """What is left to do of it; mail that was kept after its beginning stays."""

    def __init__(self, box: Mailbox, reason: str, done: Callable[[int], None]) -> None:
        self._box = box
        self._reason = reason
        self._done = done
        self._until = box.room.wall_time()
        self._last_read = 0
        self._count = 0
        self._is_reading = False

    def go_on(self) -> None:
        """Bury the next page, as soon as nobody has any of the mail."""
        box = self._box
        if self._is_reading or box.in_flight or box.claim is None:
            return
        self._is_reading = True
        operation = Read(box.claim, self._last_read, _PAGE, _PAGE_BYTES)
        box.room.submit(operation, self._on_read)

    def _on_read(self, outcome: list[Mail] | MailFailure) -> None:
        self._is_reading = False
        if isinstance(outcome, MailFailure):
            self._box.lose_claim()
            return
        mail = [each for each in outcome if each.kept_at <= self._until]
        for each in mail:
            self._last_read = each.id
            if self._box.bury(each, self._reason, self._ack()):
                self._count += 1
        if mail and len(mail) == len(outcome):
            self.go_on()
        else:
            self._box.end_burial(has_more=bool(outcome))
            self._done(self._count)

    def _ack(self) -> Ack:
        """Return the answer of an addressee that will not come."""
        return Ack(False, self._reason, client_id=self._box.address)
