"""One mailbox while the bus runs: claims it, reads it, hands its mail over and settles it.

The disk is the truth. In memory there is only a window: mail that is next to be handed over, and
mail that was handed over and is not answered. Mail that comes back without an answer is forgotten
here and read again, from where it was; so the order is that of the disk, however often peers leave.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import structlog
from msgspec import UNSET, Raw

from busd.bus.burial import Burial
from busd.bus.mail import Box, Mail, MailFailure, NotFound, NotHeld, StoreFailed
from busd.bus.mail_attempt import Attempt, QueuedMail
from busd.bus.mail_state import MailState
from busd.bus.mail_store import (
    Bury,
    Claim,
    MailStore,
    NoteAttempt,
    Peek,
    Postpone,
    Read,
    Release,
    SettleOne,
)
from busd.bus.mail_verdict import Verdict, verdict_of
from busd.bus.message import Ack, HandedMessage, Message, Outcome
from busd.rpc.envelope import Call, encode

if TYPE_CHECKING:
    from busd.bus.bus import Bus
    from busd.bus.delivery import AnyAck

log = structlog.get_logger("busd.bus")

HOLDER = "bus"
_FIRST_WINDOW, _LARGEST_WINDOW = 8, 256
_QUICK_SHARE = 8  # of the time to answer
_WINDOW_BYTES = 1024 * 1024
_MAX_QUEUED = 256
_PAGE = 100
_PAGE_BYTES = 4 * 1024 * 1024
_MAX_POSTPONED = 1_000  # known in memory; beyond that the rest is read when these are done
_BUSY_SECONDS = 1.0


class Room(Protocol):
    """What a mailbox needs of all of them together."""

    bus: Bus
    store: MailStore
    nobody: Any  # the asker of deliveries that nobody asked for

    @property
    def max_attempts(self) -> int: ...
    @property
    def ack_seconds(self) -> float: ...
    def max_losses(self, address: str) -> float: ...
    def submit(self, operation: Any, done: Callable[[Any], None]) -> None: ...
    def is_deliverable(self, address: str) -> bool: ...
    def wall_time(self) -> float: ...
    def retry_seconds(self, attempts: int) -> float: ...
    def call_at(self, when: float, box: Mailbox) -> None: ...
    def on_ended(self, item: QueuedMail, acks: list[AnyAck], reason: str) -> None: ...
    def on_late_answer(self, item: QueuedMail, acks: list[AnyAck]) -> None: ...
    def on_removed(self, number: int) -> None: ...
    def on_attempt_failed(self, item: QueuedMail, acks: list[AnyAck], seconds: float) -> None: ...


class Mailbox:
    """The mail of one address."""

    def __init__(self, address: str, room: Room, *, is_new: bool) -> None:
        self.address = address
        self.room = room
        self.claim: Box | None = None
        self.queue: deque[QueuedMail] = deque()  # next to be handed over, in the order kept
        self.in_flight: dict[int, QueuedMail] = {}
        self.has_more = not is_new  # mail after `_last_read` on the disk
        self.idle_at: float | None = None
        self.promised = 0  # being kept, to be handed over at once
        self.burials: deque[Burial] = deque()  # the first one is in progress
        self._window = _FIRST_WINDOW
        self._last_read = 0
        self._in_flight_bytes = 0
        self._postponed: dict[int, float] = {}  # id -> when, on the bus's clock
        self._due: set[int] = set()  # was put off until now, and is being read
        self._removing: dict[int, SettleOne | Bury] = {}  # what is done, and not gone yet
        self._unwritten: list[int] = []  # of these: what the store could not write
        self._failures: Counter[int] = Counter()  # by mail: attempts that did not succeed
        self._losses: Counter[int] = Counter()  # by mail: peers that left before they answered
        self._is_claiming = self._is_reading = self._is_noting = self._is_pumping = False
        self._resumes_at = 0.0

    # What there is

    @property
    def is_empty(self) -> bool:
        return not (self.has_mail or self._removing or self.burials)

    @property
    def has_mail(self) -> bool:
        """There is mail that is not done, as far as is known."""
        is_read = self.queue or self.in_flight or self._postponed or self._due
        return self.has_more or bool(is_read)

    @property
    def is_dispensable(self) -> bool:
        """All that is known here is that there is mail on the disk."""
        known = self.queue or self.in_flight or self._postponed or self._due or self._removing
        counted = self.burials or self.promised or self._losses or self._failures
        is_at_it = self._is_claiming or self._is_reading or self._is_noting
        return self.has_more and not (known or counted or is_at_it)

    @property
    def is_behind(self) -> bool:
        """Mail waits that nobody was handed; what comes later has to go behind it."""
        return self.has_more or bool(self.queue) or bool(self.burials)

    @property
    def will_hand_over(self) -> bool:
        """What is kept now is handed over at once."""
        return (
            self.claim is not None
            and not self.is_behind
            and not self._is_noting
            and len(self.in_flight) + self.promised < self._window
            and self._in_flight_bytes < _WINDOW_BYTES
            and self.room.bus.clock() >= self._resumes_at
        )

    @property
    def _has_room(self) -> bool:
        return len(self.in_flight) < self._window and self._in_flight_bytes < _WINDOW_BYTES

    # Filling the window

    def take(self, mail: Mail) -> None:
        """Accept mail that was just kept: into the window if it is next, else it is read later."""
        is_behind = self.has_more or self._is_reading or bool(self.burials)
        if is_behind or len(self.queue) >= _MAX_QUEUED:
            self.has_more = True
        else:
            self._last_read = mail.id
            # Its attempt is on record before it is made.
            self.queue.append(QueuedMail(self, mail, 0))
        self.pump()

    def expect_more(self) -> None:
        """Read mail that came onto the disk by another way."""
        self.has_more = True
        self.pump()

    def pump(self) -> None:
        """Hand over as much as its peers may have in flight; read more if there is more."""
        if not self._is_pumping:  # a peer in this process may answer at once
            self._is_pumping = True
            try:
                self._pump()
            finally:
                self._is_pumping = False

    def _pump(self) -> None:
        if not self.burials and not self.room.is_deliverable(self.address):
            self._forget_queue()
            return
        if self.claim is None:
            self._claim()
            return
        if self.room.bus.clock() < self._resumes_at:
            return
        if self.burials:
            self.burials[0].go_on()
            return
        while self.queue and self._has_room:
            item = self.queue[0]
            if item.recorded <= item.made:
                self._note_attempts()
                break
            self.queue.popleft()
            self._hand_over(item)
            if self.room.bus.clock() < self._resumes_at:
                return  # it was too much for its peers
        if self.has_more and not self.queue and not self._is_reading:
            self._read()

    def _forget_queue(self) -> None:
        """Leave what nobody takes now to the disk."""
        if self.queue:
            self._rewind(self.queue[0].mail.id)

    def _rewind(self, number: int) -> None:
        """Read mail from this one on again; what is in flight is skipped then."""
        # The queue is not sorted: what was put off comes back to it.
        first = min([number, *(item.mail.id for item in self.queue)])
        self._last_read = min(self._last_read, first - 1)
        self.queue.clear()
        self.has_more = True

    def read_again(self) -> None:
        """Read everything that the disk has; what is known here stays where it is."""
        self._rewind(1)

    def _claim(self) -> None:
        if not self._is_claiming:
            self._is_claiming = True
            self.room.submit(Claim(self.address, HOLDER), self._on_claimed)

    def _on_claimed(self, outcome: Box | MailFailure) -> None:
        self._is_claiming = False
        if isinstance(outcome, MailFailure):
            self.pause(_BUSY_SECONDS)
            return
        self.claim = outcome
        self._write_on()
        self.pump()

    def release(self) -> None:
        """End the claim."""
        if self.claim is not None:
            self.room.submit(Release(self.claim), _ignore)
            self.claim = None

    def _read(self) -> None:
        assert self.claim is not None
        if len(self._postponed) >= _MAX_POSTPONED:
            return
        self._is_reading = True
        operation = Read(self.claim, self._last_read, _PAGE, _PAGE_BYTES)
        self.room.submit(operation, partial(self._on_read, self._last_read))

    def _on_read(self, after_id: int, outcome: list[Mail] | MailFailure) -> None:
        self._is_reading = False
        if isinstance(outcome, MailFailure):
            self.lose_claim()
            return
        if self.burials:
            self.has_more = True
        elif after_id == self._last_read:  # else some of it came back meanwhile: read again
            self.has_more = bool(outcome)
            queued = {item.mail.id for item in self.queue}
            for mail in outcome:
                self._last_read = mail.id
                if mail.id not in queued:
                    self._queue_read(mail)
        self.pump()

    def _queue_read(self, mail: Mail) -> None:
        number = mail.id
        if self._is_placed(number):
            return
        wait = mail.not_before - self.room.wall_time()
        if wait > 0:
            # Whatever the clock says, an attempt is put off no longer than the longest pause.
            self._put_off(number, min(wait, self.room.retry_seconds(1_000)))
        else:
            self.queue.append(QueuedMail(self, mail, mail.attempts))

    def _is_placed(self, number: int) -> bool:
        """Return whether mail needs no place in the queue."""
        is_waiting = number in self._postponed or number in self._due
        return is_waiting or number in self.in_flight or number in self._removing

    def lose_claim(self) -> None:
        """Claim the mailbox again, and read it: the store failed, or has a new file."""
        self.has_more = True
        self._claim_later()

    def _claim_later(self) -> None:
        self.claim = None
        self.pause(_BUSY_SECONDS)

    def _note_attempts(self) -> None:
        """Have the attempts of the next mail recorded, so many as fit into the window."""
        if self._is_noting:
            return
        assert self.claim is not None
        chosen = [each for each in islice(self.queue, self._window) if each.recorded <= each.made]
        for item in chosen:
            self._is_noting = True
            last = partial(self._on_noted, item, is_last=item is chosen[-1])
            self.room.submit(NoteAttempt(self.claim, item.mail.id), last)

    def _on_noted(self, item: QueuedMail, outcome: int | MailFailure, *, is_last: bool) -> None:
        if is_last:
            self._is_noting = False
        if isinstance(outcome, int):
            item.recorded = outcome
        elif isinstance(outcome, NotFound):  # expired or purged
            if item in self.queue:
                self.queue.remove(item)
        else:
            self.lose_claim()
            return
        if is_last:
            self.pump()

    # Handing over

    def _hand_over(self, item: QueuedMail) -> None:
        bus, mail = self.room.bus, item.mail
        peers = bus.routes.match(mail.address)
        if mail.expires_at <= self.room.wall_time() or not peers:
            # The store will make it a dead letter, unless the clock is set back before that.
            self._rewind(mail.id)
            self.pause(_BUSY_SECONDS)
            return
        item.made += 1
        item.enter("handed_over")
        call_id = bus.take_call_id()
        bus.tally.extra_copies += len(peers)
        bus.loops.note_handed_over(mail, [peer.name for peer in peers])
        message = Message(
            sender=mail.sender,
            to=mail.address,
            message_id=mail.message_id,
            payload=Raw(mail.payload),
        )
        frame = encode(Call(call_id, "processMessage", message))
        kept = ""
        if bus.recorder is not None and bus.recorder.keeps_payloads:
            kept = bus.recorder.keep(message.payload)
        allowance = self.room.nobody.allowance
        allowance.left -= len(peers)
        allowance.unasked += len(peers)
        attempt = Attempt(
            call_id,
            message,
            self.room.nobody,
            UNSET,
            allowance,
            bus.clock(),
            kept,
            len(peers),
            peers[0],
            self.room.nobody.held,
            bus.limits,
            item=item,
            handed_at=bus.clock(),
            names=frozenset(peer.name for peer in bus.routes.answering(mail.address)),
            acks=[],
        )
        self.in_flight[mail.id] = item
        self._in_flight_bytes += len(mail.payload)
        flagged = None
        for peer in peers:
            if item.made > 1 and peer.shows_attempts:
                handed = _with_attempt(message, item.made)
                flagged = flagged or encode(Call(call_id, "processMessage", handed))
                peer.hand_over(handed, flagged, attempt)
            else:
                peer.hand_over(message, frame, attempt)
        message.payload = Raw(b"{}")  # in memory once, as mail
        if bus.is_verbose:
            bus.log_message(message, [peer.name for peer in peers])

    def on_answered(self, item: QueuedMail, attempt: Attempt) -> None:
        """Act on the answers of all who got a message."""
        number = item.mail.id
        if self.in_flight.pop(number, None) is None:
            return
        self._in_flight_bytes -= len(item.mail.payload)
        verdict = verdict_of(attempt.acks, attempt.names)
        was_final = item.state.is_final  # it expired or was purged
        item.enter(verdict.event)
        if was_final:
            self.room.on_late_answer(item, attempt.acks)
        elif verdict.event in ("acked", "refused"):
            self._widen(attempt)
            self.room.on_ended(item, attempt.acks, verdict.reason)
        else:
            self._try_again(item, attempt.acks, verdict)
        self.pump()

    def on_silence(self) -> None:
        """Have one message in flight at a time: its peer takes long."""
        self._window = 1

    def _widen(self, attempt: Attempt) -> None:
        """Have more in flight from now on, unless the answer took too long."""
        bus = self.room.bus
        is_quick = bus.clock() - attempt.handed_at < bus.limits.ack_seconds / _QUICK_SHARE
        if is_quick and self._window < _LARGEST_WINDOW:
            self._window += 1

    def _try_again(self, item: QueuedMail, acks: list[AnyAck], verdict: Verdict) -> None:
        bus, number = self.room.bus, item.mail.id
        if verdict.outcome is Outcome.STOPPING or bus.is_stopping:
            self._rewind(number)
            self.room.on_attempt_failed(item, acks, float("inf"))
            return
        if all(ack.outcome is Outcome.BUSY for ack in acks):
            item.made -= 1  # nobody has got it
            self._put_back(item)
            self.pause(verdict.retry_seconds or _BUSY_SECONDS)
            self.room.on_attempt_failed(item, acks, _BUSY_SECONDS)
            return
        if verdict.outcome is Outcome.LOST:
            # Its peer may have died over one of them: only the first is handed over next.
            self._window = 1
            self._losses[number] += 1
        is_harmful = self._losses[number] >= self.room.max_losses(self.address)
        if is_harmful or item.made >= self.room.max_attempts:
            item.enter("gave_up")
            self.room.on_ended(item, acks, verdict.reason)
            return
        if verdict.outcome is Outcome.LOST:
            self._rewind(number)
            self.room.on_attempt_failed(item, acks, 0.0)
            return
        seconds = verdict.retry_seconds
        if seconds is None:
            # By what failed in this run: attempts that a crash ended are no reason to wait longer.
            self._failures[number] += 1
            seconds = self.room.retry_seconds(self._failures[number])
        self._put_off(number, seconds)
        if self.claim is not None:
            when = self.room.wall_time() + seconds
            operation = Postpone(self.claim, number, when, verdict.reason)
            self.room.submit(operation, partial(self._on_changed, number))
        self.room.on_attempt_failed(item, acks, seconds)

    def _put_back(self, item: QueuedMail) -> None:
        """Put mail that comes back before what was kept later."""
        place = 0
        for place, other in enumerate((*self.queue, None)):  # noqa: B007 - used after the loop
            if other is None or other.mail.id > item.mail.id:
                break
        self.queue.insert(place, item)

    def _put_off(self, number: int, seconds: float) -> None:
        when = self._postponed[number] = self.room.bus.clock() + seconds
        self.room.call_at(when, self)

    def pause(self, seconds: float) -> None:
        """Hand nothing over for a while."""
        self._resumes_at = self.room.bus.clock() + seconds
        self.room.call_at(self._resumes_at, self)

    @property
    def times(self) -> set[float]:
        """When there is something to do, on the bus's clock."""
        return {self._resumes_at, *self._postponed.values()}

    def on_time(self) -> None:
        """Read what was put off until now, and go on."""
        self._write_on()
        now = self.room.bus.clock()
        due = [number for number, when in self._postponed.items() if when <= now]
        for number in due:
            del self._postponed[number]
            if self.claim is not None:
                self._due.add(number)
                operation = Read(self.claim, number - 1, 1)
                self.room.submit(operation, partial(self._on_due, number))
            else:
                self._rewind(number)
        self.pump()

    def _on_due(self, number: int, outcome: list[Mail] | MailFailure) -> None:
        self._due.discard(number)
        if isinstance(outcome, MailFailure):
            self._rewind(number)
            self.lose_claim()
            return
        if self.burials:
            self.has_more = True
            return
        is_here = self._is_placed(number) or any(each.mail.id == number for each in self.queue)
        if outcome and outcome[0].id == number and not is_here:
            mail = outcome[0]
            self._put_back(QueuedMail(self, mail, mail.attempts))
        self.pump()

    # Mail that is done

    def remove(self, number: int, outcome: bytes, reason: str | None) -> None:
        """Delete mail, or make it a dead letter if there is a reason; record its outcome."""
        self._losses.pop(number, None)
        self._failures.pop(number, None)
        box: Any = self.claim  # set when it is submitted
        operation: SettleOne | Bury = SettleOne(box, number, outcome)
        if reason is not None:
            operation = Bury(box, number, reason, self.room.wall_time(), outcome)
        self._removing[number] = operation
        self._unwritten.append(number)
        self._write_on()

    def _write_on(self) -> None:
        """Submit what is done and not written; the claim may have ended meanwhile."""
        if not self._unwritten:
            return
        if self.claim is None:
            self._claim()
            return
        numbers, self._unwritten = self._unwritten, []
        for number in numbers:
            operation = self._removing[number]
            operation.box = self.claim
            self.room.submit(operation, partial(self._on_removed, number))

    def _on_removed(self, number: int, outcome: object) -> None:
        if isinstance(outcome, StoreFailed | NotHeld):
            # Done, but the disk does not know it: tried until it does.
            self._unwritten.append(number)
            if isinstance(outcome, NotHeld):
                self.lose_claim()
            else:
                self._claim_later()  # what is done does not hold up what comes
            return
        del self._removing[number]
        self.room.on_removed(number)

    def is_removing(self, number: int) -> bool:
        """Return whether mail is done and being deleted; it will be no dead letter."""
        return isinstance(self._removing.get(number), SettleOne)

    def state_of(self, number: int) -> MailState:
        """Return the state of mail that is not done, as far as it is known here."""
        if number in self.in_flight:
            return self.in_flight[number].state
        return MailState.RETRYING if number in self._postponed else MailState.KEPT

    def _on_changed(self, number: int, outcome: object) -> None:
        if isinstance(outcome, StoreFailed):
            self._claim_later()

    def forget(self, numbers: Iterable[int]) -> list[QueuedMail]:
        """Forget mail that is no longer in the mailbox; return what of it is in flight."""
        gone = set(numbers)
        self.queue = deque(each for each in self.queue if each.mail.id not in gone)
        for number in gone:
            self._postponed.pop(number, None)
            self._losses.pop(number, None)
            self._failures.pop(number, None)
        return [self.in_flight[number] for number in gone if number in self.in_flight]

    def bury_all(self, reason: str, done: Callable[[int], None]) -> None:
        """Make dead letters of all mail there is now, once nobody has any of it.

        Nothing is handed over until then; `done` is called with their number.
        """
        self.burials.append(Burial(self, reason, done))
        self._postponed.clear()
        self._rewind(1)
        self.pump()

    def bury(self, mail: Mail, reason: str, ack: Ack) -> bool:
        """Make a dead letter of mail that nobody has, unless it is done already."""
        if mail.id in self._removing:
            return False
        item = QueuedMail(self, mail, mail.attempts)
        item.enter("buried")
        self.room.on_ended(item, [ack], reason)
        return True

    def end_burial(self, *, has_more: bool) -> None:
        """Deliver what was kept after the beginning of a burial."""
        self.burials.popleft()
        self._rewind(1)
        self.has_more = has_more or bool(self.burials)
        self.pump()

    def look(self) -> None:
        """Find out whether anything is left; nobody reads the mailbox of somebody who is absent."""
        if self.has_more and not self._is_reading:
            self.room.submit(Peek(self.address, limit=1), self._on_look)

    def _on_look(self, outcome: list[Mail] | MailFailure) -> None:
        if outcome == [] and not self.queue:
            self.has_more = False


def _with_attempt(message: Message, number: int) -> HandedMessage:
    return HandedMessage(
        sender=message.sender,
        to=message.to,
        message_id=message.message_id,
        payload=message.payload,
        delivery_attempt=number,
    )


def _ignore(outcome: object) -> None:
    """Ignore the outcome."""
