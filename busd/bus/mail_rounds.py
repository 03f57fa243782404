"""What is done for all mailboxes from time to time, a slice per turn of the loop.

| what | when |
| --- | --- |
| delivering to whoever has joined | in the next turn |
| what a mailbox has put off | when it is due |
| expiry of mail, of idempotency keys | each second, each minute |
| releasing idle mailboxes, recording again who answers for what | always, a slice per sweep |
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count, islice
from typing import TYPE_CHECKING

from busd.bus.mail import Mail, MailFailure
from busd.bus.mail_senders import SavedOutcome
from busd.bus.mail_state import MailState
from busd.bus.mail_store import Expire, ForgetKeys
from busd.rpc.envelope import encode

if TYPE_CHECKING:
    from busd.bus.mailbox import Mailbox
    from busd.bus.mailboxes import Mailboxes
    from busd.bus.peer import Member

EXPIRED_REASON = "not delivered within its time"
_IDLE_SECONDS = 10.0  # after which an empty mailbox is released
_EXPIRY_SECONDS = 1.0
_EXPIRED_AT_ONCE = 200
_EXPIRED = encode(SavedOutcome(MailState.EXPIRED, 0))
_KEYS_SECONDS = 60.0
_REFRESH_SECONDS = 600.0
_MAX_UNWRITTEN = 2_000  # operations, beyond which no more mailboxes are looked at
_SPARE_TIMERS = 1_000
_SLICE = 500  # mailboxes or peers looked at per turn of the loop


class Rounds:
    """Goes round the mailboxes of one bus."""

    def __init__(self, mailboxes: Mailboxes) -> None:
        self._all = mailboxes
        self._timers: list[tuple[float, int, Mailbox]] = []
        self._most_timers = _SPARE_TIMERS
        self._numbers = count(1)
        self._joined: list[str] = []  # addresses that somebody begins to answer for
        self._must_look = False  # for all mailboxes that somebody answers for
        self._look: Iterator[None] | None = None
        self._is_expiring = False
        self._round = self._go_round()
        self._left_of_slice = _SLICE
        self._next_expiry = self._next_keys = self._next_refresh = 0.0

    # Whoever joins

    def look_at(self, address: str) -> None:
        """Deliver the mail of an address in the next turn."""
        self._joined.append(address)
        self._all.bus.wake()

    def look_for_all(self) -> None:
        """Deliver all mail that somebody answers for, beginning in the next turn."""
        # One look serves all patterns that came before it: a peer may have thousands.
        if self._all.boxes or self._all.dormant:
            self._must_look = True
            self._all.bus.wake()

    def work(self) -> bool:
        """Deliver to those who joined, a slice at a time; return whether there is more to do."""
        joined, self._joined = self._joined, []
        for address in joined:
            if box := self._all.find_box(address):
                self._all.attend(box)
        if self._all.store.waiting > _MAX_UNWRITTEN:
            return False  # the next sweep goes on
        if self._look is None and self._must_look:
            self._must_look = False
            self._look = self._attend_all()
        if self._look is not None and next(self._look, self) is self:
            self._look = None
        return self._look is not None or self._must_look

    def _attend_all(self) -> Iterator[None]:
        for place, address in enumerate([*self._all.boxes, *self._all.dormant]):
            box = self._all.find_box(address) if self._all.is_deliverable(address) else None
            if box is not None and not box.is_empty:
                self._all.attend(box)
            if not (place + 1) % _SLICE:
                yield

    # What is due

    def call_at(self, when: float, box: Mailbox) -> None:
        """Call `on_time` of a mailbox at a time on the bus's clock."""
        if len(self._timers) > self._most_timers:
            self._forget_timers()
        heappush(self._timers, (when, next(self._numbers), box))

    def _forget_timers(self) -> None:
        """Forget the timers of mail that is gone: it may have been put off for a month."""
        here = {
            timer[2] for timer in self._timers if self._all.boxes.get(timer[2].address) is timer[2]
        }
        times = {box: box.times for box in here}
        self._timers = [timer for timer in self._timers if timer[0] in times.get(timer[2], ())]
        heapify(self._timers)
        self._most_timers = 2 * len(self._timers) + _SPARE_TIMERS

    def sweep(self) -> None:
        """Do what is due."""
        mailboxes, now = self._all, self._all.bus.clock()
        while self._timers and self._timers[0][0] <= now:
            box = heappop(self._timers)[2]
            if mailboxes.boxes.get(box.address) is box:
                box.on_time()
                mailboxes.divert(box.address)
        if self._look is not None:
            mailboxes.bus.wake()
        if now >= self._next_expiry and not self._is_expiring:
            self._next_expiry = now + _EXPIRY_SECONDS
            self._expire()
        if now >= self._next_keys:
            self._next_keys = now + _KEYS_SECONDS
            before = mailboxes.wall_time() - mailboxes.settings.key_seconds
            mailboxes.submit(ForgetKeys(before), _ignore)
        next(self._round)

    def _expire(self) -> None:
        self._is_expiring = True
        operation = Expire(self._all.wall_time(), _EXPIRED_AT_ONCE, _EXPIRED)
        self._all.submit(operation, self._on_expired)

    def _on_expired(self, outcome: list[Mail] | MailFailure) -> None:
        self._is_expiring = False
        if isinstance(outcome, MailFailure):
            return
        self._all.on_gone(outcome, "expired", EXPIRED_REASON)
        if len(outcome) == _EXPIRED_AT_ONCE and not self._all.bus.is_stopping:
            self._expire()  # at once: a mailbox whose first mail has expired waits for this

    def _go_round(self) -> Iterator[None]:
        """Look at all mailboxes and peers again and again, a slice at each sweep."""
        while True:
            for box in list(self._all.boxes.values()):
                if self._is_idle_for_long(box):
                    box.release()
                    del self._all.boxes[box.address]
                if self._is_slice_over():
                    yield
            if self._all.bus.clock() >= self._next_refresh:
                self._next_refresh = self._all.bus.clock() + _REFRESH_SECONDS
                for peer in self._all.bus.remote_peers:
                    yield from self._refresh_known(peer)
            self._left_of_slice = _SLICE
            yield

    def _is_slice_over(self) -> bool:
        self._left_of_slice -= 1
        if self._left_of_slice > 0:
            return False
        self._left_of_slice = _SLICE
        return True

    def _is_idle_for_long(self, box: Mailbox) -> bool:
        """Return whether a mailbox has been empty for a while."""
        if self._all.boxes.get(box.address) is not box:
            return False
        self._all.divert(box.address)
        self._all.let_rest(box)
        now = self._all.bus.clock()
        if not box.is_empty or box.promised:
            box.idle_at = None
        elif box.idle_at is None:
            box.idle_at = now
        is_here = box.address in self._all.boxes
        return is_here and box.idle_at is not None and now - box.idle_at >= _IDLE_SECONDS

    def _refresh_known(self, peer: Member) -> Iterator[None]:
        """Record again what a peer answers for: a bus killed a month later shall still know it."""
        for pattern in list(islice(peer.subscriptions, _SLICE)):
            if pattern in peer.subscriptions and self._all.policy.may_know(pattern):
                self._all.known.note(pattern, peer)
            if self._is_slice_over():
                yield


def _ignore(outcome: object) -> None:
    """Ignore the outcome."""
