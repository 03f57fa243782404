"""Mailboxes: messages are kept on the disk before they are handed over, until they are done.

A message is kept if its sender wants that, if nobody is here who answers for its address but
somebody is known to, or if earlier mail for its address still waits. `mailbox` delivers it, the
store keeps it, and here is what senders are told.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Literal, Protocol

import structlog
from msgspec import UNSET, Raw

from busd.bus.address import check_address, has_wildcard
from busd.bus.delivery import AnyAck, HeldBytes
from busd.bus.known import KnownAddresses
from busd.bus.mail import (
    DeadLetter,
    Kept,
    Mail,
    MailFailure,
    StoreBusy,
    StoreFailed,
)
from busd.bus.mail_attempt import QueuedMail
from busd.bus.mail_policy import MailPolicy, MailSettings, mail_of
from busd.bus.mail_rounds import EXPIRED_REASON, Rounds
from busd.bus.mail_senders import SavedOutcome, Senders, Waiter, fault_of
from busd.bus.mail_shares import WriteShares
from busd.bus.mail_state import MailState
from busd.bus.mail_store import (
    DropDead,
    Finish,
    Keep,
    Known,
    ListDead,
    MailStore,
    Revive,
    Survey,
)
from busd.bus.mailbox import Mailbox
from busd.bus.message import Message
from busd.bus.quota import UNLIMITED, Account, Allowance
from busd.bus.record import MAX_ERROR_CHARACTERS, Record, Status
from busd.errors import Busy, InvalidParams, RequestError
from busd.rpc.endpoint import Asker
from busd.rpc.envelope import RequestId, encode

if TYPE_CHECKING:
    from busd.bus.bus import Bus
    from busd.bus.peer import Member

log = structlog.get_logger("busd.bus")

_SURVEYED_AT_ONCE = 50_000  # before anybody is connected
MAIL_EVENTS = (
    "kept",
    "refused_to_keep",
    "duplicate",
    "retried",
    "acked",
    "refused",
    "expired",
    "dead",
    "purged",
    "revived",
)
_SLACK_SECONDS = 0.5  # beyond the time-out, so that the time-out of an attempt is told first


class Nobody:
    """The asker of deliveries from mailboxes: their answers go to the mailbox."""

    max_frame_bytes = inf
    out = ()

    def __init__(self) -> None:
        self.allowance = Allowance(Account("mailboxes", None), UNLIMITED)
        self.held = HeldBytes()

    def answer(self, request_id: RequestId, result: Any, /) -> None: ...
    def answer_encoded(self, frame: bytes, /) -> None: ...
    def fail(self, request_id: RequestId, fault: RequestError, /) -> None: ...
    def charge(self) -> None: ...


class MailWatcher(Protocol):
    """Whoever is notified of what happens to mail."""

    def on_mail(self, mail: Mail) -> None:
        """Handle mail that is kept for an address that nobody answers for."""

    def on_dead_letter(self, mail: Mail, reason: str) -> None:
        """Handle mail that became a dead letter without any sender learning of it."""


class Mailboxes:
    """All mailboxes of one bus."""

    def __init__(
        self,
        bus: Bus,
        store: MailStore,
        settings: MailSettings,
        wall_time: Callable[[], float] = time.time,
    ) -> None:
        self.bus = bus
        self.store = store
        self.wall_time = wall_time
        self.nobody = Nobody()
        self.known = KnownAddresses(store, wall_time)
        self.policy = MailPolicy(settings, self.known)
        bus.routes.is_expected = self.policy.is_expected
        self.change(settings)
        self.boxes: dict[str, Mailbox] = {}
        # Addresses with mail that nobody gets now: a mailbox in memory would take 4 KiB for each.
        self.dormant: dict[str, None] = {}
        self.held: set[str] = set()  # addresses that get no mail for now
        self._written: Counter[str] = Counter()  # messages being written, by address
        self.counts: Counter[str] = Counter()  # for metrics
        self.watchers: list[MailWatcher] = []
        self.senders = Senders(bus, self.boxes, self.counts, self.is_deliverable)
        self._shares = WriteShares()
        self._was_failing = False
        self._in_vain: list[tuple[Any, Callable[[Any], None]]] = []  # to be submitted again
        self.rounds = Rounds(self)
        self.call_at = self.rounds.call_at

    def change(self, settings: MailSettings) -> None:
        """Apply settings; the limits of the store stay until a restart."""
        self.settings = settings
        self.policy.change(settings)
        self.known.known_seconds = settings.known_seconds
        self.known.max_count = settings.known_count

    def load(self, done: Callable[[], None]) -> None:
        """Find out what an earlier run left; call `done` when it is known."""
        self.store.submit(Known(), self._on_known)
        self._survey("", done)

    def _on_known(self, outcome: Any) -> None:
        if isinstance(outcome, MailFailure):
            self._in_vain.append((Known(), self._on_known))
        else:
            self.known.load(outcome)

    def _survey(self, after: str, done: Callable[[], None]) -> None:
        operation = Survey(after=after, limit=_SURVEYED_AT_ONCE)
        self.store.submit(operation, partial(self._on_survey, after, done))

    def _on_survey(self, after: str, done: Callable[[], None], outcome: Any) -> None:
        if isinstance(outcome, MailFailure):
            # What waits is found later; meanwhile there is no reason to refuse peers.
            later = partial(self._on_survey, after, _do_nothing)
            self._in_vain.append((Survey(after=after, limit=_SURVEYED_AT_ONCE), later))
        if isinstance(outcome, MailFailure) or not outcome:
            done()
            return
        for summary in outcome:
            if summary.count:
                box = self._box(summary.address)
                box.read_again()
                self.attend(box)
                self.let_rest(box)
        self._survey(outcome[-1].address, done)

    # What a message gets

    def wants(self, address: str) -> bool:
        """Return whether a message that is not durable is to be kept nevertheless."""
        routes = self.bus.routes
        if address in self.held:
            return True
        if routes.answering(address):
            return address in routes.diverted
        return self.policy.keeps(address)

    def keep(
        self,
        message: Message,
        asker: Asker,
        request_id: RequestId,
        allowance: Allowance,
        awaits_absent: bool = False,
        patience_seconds: float | None = None,
    ) -> None:
        """Keep a message that was accepted, then deliver it; answer when it is known what became
        of it, or at once when it is kept for somebody who is absent.

        With `awaits_absent`, and if a plugin claims the address, the answer waits for somebody to
        come; it is given after `patience_seconds`, by default the time to answer a message.
        """
        if bytes(memoryview(message.payload)[:1]) != b"{":
            raise InvalidParams("sendMessage: payload must be an object", member="payload")
        if self.bus.is_stopping:
            raise Busy("the bus is stopping", retrySeconds=1)
        check_address(message.to)
        mail = mail_of(message, allowance.account.name, self.settings, self.wall_time())
        self._check_share(mail)
        if allowance.left < 1:
            allowance.left = allowance.account.grant(allowance, 1) + 1
        self._accept(mail, message, allowance.sender)
        box = self.boxes.get(message.to)
        is_direct = box is not None and box.will_hand_over and self.is_deliverable(message.to)
        mail.attempts = int(is_direct)
        if box is not None:
            box.promised += is_direct
        allowance.left -= 1
        allowance.unasked += request_id is UNSET
        self._shares.note(mail, 1)
        self._written[mail.address] += 1
        self.divert(mail.address)
        seconds = patience_seconds
        if seconds is None:
            seconds = self.bus.limits.ack_seconds
        waiter = Waiter(
            asker,
            request_id,
            allowance,
            mail.message_id,
            mail.address,
            self.bus.clock() + seconds + _SLACK_SECONDS,
            awaits_absent or self.policy.is_claimed(mail.address),
            message.delivery is not UNSET,
        )
        self.store.submit(Keep(mail), partial(self._on_kept, mail, waiter, is_direct))
        if box is None and self.is_deliverable(message.to):
            self._box(message.to).pump()  # claims it, in the same transaction

    def _check_share(self, mail: Mail) -> None:
        if limit := self._shares.exceeded(mail, self.store.waiting, self.settings):
            self.counts["refused_to_keep"] += 1
            raise fault_of(StoreBusy(limit), mail.address)

    def _accept(self, mail: Mail, message: Message, sender: str) -> None:
        """Count a message that is about to be kept; raise LoopDetected if it is in a loop."""
        bus, message.message_id = self.bus, mail.message_id
        number = bus.last_call_id + 1
        if number >= bus.loops.next_number or message.caused_by is not UNSET:
            peers = bus.routes.answering(message.to)
            mail.hops = bus.loops.judge_mail(number, message, sender, peers)
        bus.last_call_id = number
        bus.tally.extra_copies -= 1  # nobody has it yet

    def _on_kept(
        self, mail: Mail, waiter: Waiter, is_direct: bool, outcome: Kept | MailFailure
    ) -> None:
        self._shares.note(mail, -1)
        self._written[mail.address] -= 1
        box = self.boxes.get(mail.address)
        if is_direct and box is not None:
            box.promised -= 1
        if isinstance(outcome, MailFailure):
            self.senders.refuse(waiter, mail, outcome)
        elif not outcome.is_new:
            self.senders.tell_of_first(waiter, outcome)
        else:
            mail.id = outcome.id
            self._add(mail, waiter)
        if not self._written[mail.address]:
            del self._written[mail.address]
        self.divert(mail.address)

    def _add(self, mail: Mail, waiter: Waiter) -> None:
        """Deliver mail that was just kept."""
        self.counts["kept"] += 1
        self.senders.wait(mail.id, waiter)
        is_deliverable = self.is_deliverable(mail.address)
        if is_deliverable or mail.address in self.boxes:
            box = self._box(mail.address)
            box.take(mail)
            if mail.id not in box.in_flight:
                self.record(mail, "kept", "")
            self.let_rest(box)
        else:
            self.dormant[mail.address] = None
            self.record(mail, "kept", "")
        if not is_deliverable:
            if not waiter.awaits_absent:
                self.senders.tell(mail.id, MailState.KEPT, mail.attempts)
            self._notify_if_absent(mail)

    def _notify_if_absent(self, mail: Mail) -> None:
        if not self.bus.routes.answering(mail.address):
            for watcher in list(self.watchers):
                watcher.on_mail(mail)

    def _box(self, address: str) -> Mailbox:
        box = self.boxes.get(address)
        if box is None:
            is_new = address not in self.dormant
            box = self.boxes[address] = Mailbox(address, self, is_new=is_new)
            self.dormant.pop(address, None)
        return box

    def find_box(self, address: str) -> Mailbox | None:
        """Return the mailbox of an address that has mail, or had some a moment ago."""
        return self._box(address) if address in self.dormant else self.boxes.get(address)

    def let_rest(self, box: Mailbox) -> None:
        """Leave a mailbox to the disk while nobody gets its mail."""
        is_here = self.boxes.get(box.address) is box
        if is_here and box.is_dispensable and not self.is_deliverable(box.address):
            box.release()
            del self.boxes[box.address]
            self.dormant[box.address] = None

    # What mailboxes need

    @property
    def max_attempts(self) -> int:
        return self.settings.max_attempts

    @property
    def ack_seconds(self) -> float:
        return self.settings.ack_seconds

    def max_losses(self, address: str) -> float:
        return self.policy.max_losses(address)

    def submit(self, operation: Any, done: Callable[[Any], None]) -> None:
        self.store.submit(operation, done)

    def is_deliverable(self, address: str) -> bool:
        """Return whether somebody is here who may get the mail of an address."""
        if self.store.is_failing:
            self._was_failing = True
            return False
        if self.bus.is_stopping or address in self.held:
            return False
        return bool(self.bus.routes.answering(address))

    def retry_seconds(self, attempts: int) -> float:
        return self.policy.retry_seconds(attempts)

    def on_attempt_failed(self, item: QueuedMail, acks: list[AnyAck], seconds: float) -> None:
        """Answer those who cannot wait for the next attempt."""
        self.counts["retried"] += 1
        self.senders.after_attempt(item, acks, seconds)
        self.divert(item.mail.address)

    def on_ended(self, item: QueuedMail, acks: list[AnyAck], reason: str) -> None:
        """Delete mail that is done; make it a dead letter if no sender learns that it failed."""
        mail, state = item.mail, item.state
        self.counts[state.value] += 1
        self.senders.take_acks(mail.id, acks)
        is_told = self.senders.tell(mail.id, state, item.made)
        outcome = self.senders.save(item, acks)
        is_dead = state is not MailState.ACKED and not (is_told and state is MailState.REFUSED)
        if is_dead:
            log.info("mail.buried", mail=mail.id, to=mail.address, state=state, reason=reason)
            self.record(mail, "dead", reason)
        item.box.remove(mail.id, outcome, reason if is_dead else None)
        if is_dead and not is_told:
            self._on_dead_letter(mail, reason)
        self.divert(mail.address)

    def on_removed(self, number: int) -> None:
        """Rely on the disk from now on."""
        self.senders.forget(number)

    def on_late_answer(self, item: QueuedMail, acks: list[AnyAck]) -> None:
        """Delete the dead letter of mail that expired in flight and was acked then."""
        if item.state is MailState.ACKED:
            self.counts["acked"] += 1
            item.box.remove(item.mail.id, self.senders.save(item, acks), None)
            self._drop_dead(item.mail.id)

    def _drop_dead(self, number: int) -> None:
        self._submit_until_done(DropDead([number]))

    def _submit_until_done(self, operation: Any) -> None:
        def again(outcome: object) -> None:
            if isinstance(outcome, StoreFailed):
                self._in_vain.append((operation, again))

        self.submit(operation, again)

    def _on_dead_letter(self, mail: Mail, reason: str) -> None:
        for watcher in list(self.watchers):
            watcher.on_dead_letter(mail, reason)

    def bury_all(self, address: str, reason: str, done: Callable[[int], None]) -> None:
        """Make dead letters of all mail that an address has now, because nobody will come for it.

        Senders that wait get a failed ack with the reason. What peers have is buried unless they
        answer it. Calls `done` with the number of dead letters.
        """

        def on_done(count: int) -> None:
            self.divert(address)
            done(count)

        if box := self.find_box(address):
            box.bury_all(reason, on_done)
        else:
            on_done(0)

    def revive(self, letter: DeadLetter, done: Callable[[Kept | MailFailure], None]) -> None:
        """Move a dead letter back into its mailbox, and deliver it."""
        mail, now = letter.mail, self.wall_time()

        def on_revived(outcome: Kept | MailFailure) -> None:
            if not isinstance(outcome, MailFailure):
                self.counts["revived"] += 1
                self.record(mail, "kept", "retried by an operator")
                self._box(mail.address).expect_more()
                self.divert(mail.address)
                self._notify_if_absent(mail)
            done(outcome)

        seconds = min(self.settings.ttl_seconds, self.settings.max_ttl_seconds)
        self.submit(Revive(mail.id, now, now + seconds), on_revived)

    def has_mail(self, address: str) -> bool:
        """Return whether mail waits for an address that is not about to be buried."""
        box = self.boxes.get(address)
        return address in self.dormant or (box is not None and box.has_mail and not box.burials)

    def waiting(self, prefix: str) -> list[str]:
        """Return the addresses that begin so and have mail."""
        found = [each for each in (*self.boxes, *self.dormant) if each.startswith(prefix)]
        return list(filter(self.has_mail, found))

    def divert(self, address: str) -> None:
        """Have later messages go behind those that wait or are being written, or directly."""
        box = self.boxes.get(address)
        is_behind = address in self._written or address in self.dormant
        is_behind = is_behind or (box is not None and box.is_behind)
        is_diverted = is_behind or address in self.held
        if is_diverted != (address in self.bus.routes.diverted):
            self.bus.routes.divert(address, is_diverted=is_diverted)

    # What changes around them

    def on_route(self, pattern: str, peer: Member) -> None:
        """Deliver what waits for a peer that begins to answer for a pattern."""
        if self.policy.may_know(pattern):
            self.known.note(pattern, peer)
        if has_wildcard(pattern):
            self.rounds.look_for_all()
        elif pattern in self.boxes or pattern in self.dormant:
            self.rounds.look_at(pattern)

    def attend(self, box: Mailbox) -> None:
        """Deliver what can be delivered of a mailbox."""
        box.pump()
        self.divert(box.address)

    def on_unsubscribed(self, pattern: str, account: str) -> None:
        """Expect nobody to come back for a pattern; if others answer for it, it is noted again."""
        self.known.forget(pattern, account)

    def hold(self, address: str) -> None:
        """Hand over nothing to an address until it is let go; keep what comes."""
        self.held.add(address)
        self.divert(address)

    def let_go(self, address: str) -> None:
        """Deliver to an address again."""
        self.held.discard(address)
        if box := self.find_box(address):
            box.pump()
        self.divert(address)

    @property
    def is_idle(self) -> bool:
        """Nothing is being written or waits for an answer."""
        return not self._shares.count and not self.store.waiting

    def work(self) -> bool:
        """Deliver to those who joined, a slice at a time; return whether there is more to do."""
        return self.rounds.work()

    def sweep(self) -> None:
        """Do what is due: time-outs, retries, expiry, and what the store could not write."""
        self.senders.sweep(self.bus.clock())
        if self._in_vain:
            in_vain, self._in_vain = self._in_vain, []
            for operation, done in in_vain:
                self.store.submit(operation, done)
        if self._was_failing and not self.store.is_failing:
            self.rounds.look_for_all()  # nothing was handed over meanwhile
            self._was_failing = False
        self.rounds.sweep()

    def on_gone(self, gone: list[Mail], status: Literal["expired", "purged"], reason: str) -> None:
        """Forget mail that is no longer in its mailbox, and tell those who wait for it."""
        state = MailState(status)
        for mail in gone:
            box = self.find_box(mail.address)
            if box is not None and box.is_removing(mail.id):
                self._drop_dead(mail.id)  # it was done in time, and the disk did not know
                continue
            self.counts[status] += 1
            if box is not None:
                items = box.forget([mail.id]) or [QueuedMail(box, mail, mail.attempts)]
                for item in items:
                    item.enter(status)
                box.look()
                self.divert(mail.address)
            self.record(mail, status, reason)
            is_told = self.senders.tell(mail.id, state, mail.attempts)
            if state is MailState.PURGED:
                if mail.idempotency_key:
                    outcome = encode(SavedOutcome(state, mail.attempts))
                    self.submit(Finish(mail.id, outcome), _ignore)
            elif not is_told and self.policy.is_claimed(mail.address):
                letter = ListDead(after=mail.id - 1, limit=1)
                self.submit(letter, partial(self._on_expired_letter, mail.id))

    def _on_expired_letter(self, number: int, outcome: list[DeadLetter] | MailFailure) -> None:
        """Notify the watchers, with the payload that `Expire` leaves out."""
        if not isinstance(outcome, MailFailure) and outcome and outcome[0].mail.id == number:
            self._on_dead_letter(outcome[0].mail, EXPIRED_REASON)

    def stop(self) -> None:
        """Answer everybody who still waits: what they sent is kept."""
        self.senders.stop()

    # What is recorded

    def record(self, mail: Mail, status: Status, reason: str) -> None:
        """Record what became of mail, besides the attempts to deliver it."""
        recorder = self.bus.recorder
        if recorder is None:
            return
        now = self.bus.clock()
        kept = recorder.keep(Raw(mail.payload)) if mail.payload and status == "kept" else ""
        recorder.add(
            Record(
                self.bus.take_call_id(),
                str(mail.message_id),
                None,
                mail.sender,
                mail.address,
                "",
                now,
                now,
                status,
                reason[:MAX_ERROR_CHARACTERS],
                payload=kept,
            )
        )


def _do_nothing() -> None:
    """Do nothing."""


def _ignore(outcome: object) -> None:
    """Ignore the outcome."""
