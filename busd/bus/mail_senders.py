"""The senders that wait for what becomes of messages that are kept, and what they are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
from msgspec import UNSET

from busd.bus.delivery import AnyAck, cut_short, encode_receipt
from busd.bus.mail import BoxFull, Kept, KeyReused, Mail, MailFailure, NotFound, StoreBusy, TooLarge
from busd.bus.mail_state import MailState
from busd.bus.message import Ack, MailReceipt, Receipt
from busd.bus.quota import Allowance
from busd.errors import InvalidParams, KeyIsTaken, MailboxFull, MailFailed, RequestError
from busd.rpc.endpoint import Asker
from busd.rpc.envelope import RequestId, encode

if TYPE_CHECKING:
    from busd.bus.bus import Bus
    from busd.bus.mail_attempt import QueuedMail
    from busd.bus.mailbox import Mailbox

log = structlog.get_logger("busd.bus")

_MAX_OUTCOME_BYTES = 16 * 1024  # of acks, for whoever sends the message again
_RETRY_SECONDS = 5.0
_SPARE_DEADLINES = 1_000


class Waiter(msgspec.Struct, eq=False):
    """A sender that waits for what becomes of its message; it may want no answer at all."""

    asker: Asker
    request_id: RequestId
    allowance: Allowance
    message_id: Any  # str or int
    address: str
    deadline: float
    awaits_absent: bool = False  # also while nobody answers for the address
    knows_mail: bool = False  # it used the extension; others get an answer as in v2
    acks: list[Any] = []  # of the last attempt
    attempts: int = 0
    is_told: bool = False
    is_duplicate: bool = False


class SavedOutcome(msgspec.Struct):
    """How a message ended, for whoever sends it again."""

    state: MailState
    attempts: int
    acks: list[Ack] = []


class Senders:
    """Everyone who waits, by the id of the mail."""

    def __init__(
        self,
        bus: Bus,
        boxes: dict[str, Mailbox],
        counts: Counter[str],
        is_deliverable: Callable[[str], bool],
    ) -> None:
        self._bus = bus
        self._boxes = boxes
        self._counts = counts
        self._is_deliverable = is_deliverable
        # By mail, then by place in `_numbers`: one message may be sent again a thousand times.
        self._waiters: dict[int, dict[int, Waiter]] = {}
        self._waiting = 0  # of all mail together
        self._deadlines: list[tuple[float, int, Waiter, int]] = []
        self._numbers = count(1)
        self._outcomes: dict[int, SavedOutcome] = {}  # those that the disk does not know yet

    def wait(self, number: int, waiter: Waiter) -> None:
        """Answer a sender when its message is done, at the latest when its time is up."""
        place = next(self._numbers)
        self._waiters.setdefault(number, {})[place] = waiter
        self._waiting += 1
        if len(self._deadlines) > 2 * self._waiting + _SPARE_DEADLINES:
            # Most were told before their time was up: a minute's worth of them takes 300 MB.
            self._deadlines = [each for each in self._deadlines if not each[2].is_told]
            heapify(self._deadlines)
        heappush(self._deadlines, (waiter.deadline, place, waiter, number))

    def refuse(self, waiter: Waiter, mail: Mail, failure: MailFailure) -> None:
        """Answer a sender whose message was not kept."""
        fault = fault_of(failure, mail.address)
        self._bus.tally.other_ids += 1  # it was not accepted after all
        self._bus.tally.extra_copies += 1
        self._counts["refused_to_keep"] += 1
        if waiter.request_id is UNSET:
            log.warning("mail.not_kept", to=mail.address, sender=mail.sender, reason=fault.message)
        self._release(waiter)
        waiter.asker.fail(waiter.request_id, fault)

    def tell_of_first(self, waiter: Waiter, first: Kept) -> None:
        """Answer a sender that sent the same message before."""
        self._counts["duplicate"] += 1
        waiter.is_duplicate = True
        waiter.message_id = first.message_id
        if first.outcome is not None:
            saved = msgspec.json.decode(first.outcome, type=SavedOutcome)
            waiter.acks = list(saved.acks)
            self._answer(waiter, first.id, saved.state, saved.attempts)
        elif ended := self._outcomes.get(first.id):
            waiter.acks = list(ended.acks)
            self._answer(waiter, first.id, ended.state, ended.attempts)
        elif first.id in self._waiters or self._state_of(waiter, first.id) is MailState.DELIVERED:
            self.wait(first.id, waiter)
        else:
            self._answer(waiter, first.id, self._state_of(waiter, first.id), 0)

    def _state_of(self, waiter: Waiter, number: int) -> MailState:
        box = self._boxes.get(waiter.address)
        return MailState.KEPT if box is None else box.state_of(number)

    def tell(self, number: int, state: MailState, attempts: int) -> bool:
        """Answer all who wait for a message; return whether anybody learns of it."""
        waiters = self._take(number)
        for waiter in waiters:
            self._answer(waiter, number, state, attempts)
        return any(
            waiter.request_id is not UNSET and not waiter.allowance.is_closed for waiter in waiters
        )

    def _take(self, number: int) -> list[Waiter]:
        """Return all who wait for a message; they do not wait any more."""
        waiters = list(self._waiters.pop(number, {}).values())
        self._waiting -= len(waiters)
        return waiters

    def _answer(self, waiter: Waiter, number: int, state: MailState, attempts: int) -> None:
        waiter.is_told = True
        self._release(waiter)
        acks, waiter.acks = waiter.acks, []
        if waiter.request_id is UNSET:
            return
        receipt = Receipt(True, waiter.message_id, acks)
        if waiter.knows_mail:
            receipt.mail = MailReceipt(number, state, attempts)
            if waiter.is_duplicate:
                receipt.mail.duplicate = True
        if not state.is_final:
            is_failed = state in (MailState.RETRYING, MailState.UNKNOWN)
            has_failed = is_failed or (state is MailState.DELIVERED and bool(acks))
            receipt.undelivered = "retrying" if has_failed else "kept"
        room = waiter.asker.max_frame_bytes
        waiter.asker.answer_encoded(encode_receipt(waiter.request_id, receipt, room))

    def _release(self, waiter: Waiter) -> None:
        waiter.allowance.left += 1
        waiter.allowance.unasked -= waiter.request_id is UNSET

    def take_acks(self, number: int, acks: list[AnyAck]) -> None:
        """Note the acks of the last attempt, to be told with what becomes of the message."""
        for waiter in self._waiters.get(number, {}).values():
            waiter.acks = acks

    def after_attempt(self, item: QueuedMail, acks: list[AnyAck], seconds: float) -> None:
        """Answer those who cannot wait for the next attempt."""
        number = item.mail.id
        next_at = self._bus.clock() + seconds
        for place, waiter in list(self._waiters.get(number, {}).items()):
            waiter.acks, waiter.attempts = acks, item.made
            is_late = next_at > waiter.deadline
            is_absent = seconds == 0 and not self._is_deliverable(item.mail.address)
            if is_late or (is_absent and not waiter.awaits_absent):
                self._remove(number, place)
                self._answer(waiter, number, item.state, item.made)

    def _remove(self, number: int, place: int) -> None:
        """End the wait of one sender."""
        waiters = self._waiters[number]
        del waiters[place]
        self._waiting -= 1
        if not waiters:
            del self._waiters[number]

    def save(self, item: QueuedMail, acks: list[AnyAck]) -> bytes:
        """Return the outcome of mail that is done, for whoever sends it again."""
        if not item.mail.idempotency_key:
            return b""
        saved = SavedOutcome(item.state, item.made, _short(acks))
        self._outcomes[item.mail.id] = saved
        return encode(saved)

    def forget(self, number: int) -> None:
        """Rely on the disk for the outcome of a message from now on."""
        self._outcomes.pop(number, None)

    def sweep(self, now: float) -> None:
        """Answer those whose time is up."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, place, waiter, number = heappop(self._deadlines)
            if not waiter.is_told:
                self._remove(number, place)
                self._answer_what_is_known(waiter, number)

    def _answer_what_is_known(self, waiter: Waiter, number: int) -> None:
        """Answer a sender that cannot wait until its message is done."""
        box = self._boxes.get(waiter.address)
        item = None if box is None else box.in_flight.get(number)
        if item is not None:
            self._answer(waiter, number, item.state, item.made)
        else:
            state = MailState.RETRYING if waiter.acks else MailState.KEPT
            self._answer(waiter, number, state, waiter.attempts)

    def stop(self) -> None:
        """Answer everybody who still waits: what they sent is kept."""
        for number in list(self._waiters):
            for waiter in self._take(number):
                self._answer_what_is_known(waiter, number)


def _short(acks: list[AnyAck]) -> list[Any]:
    """Return acks for a sender that asks later, within a bound."""
    size = 0
    for ack in acks:
        size += memoryview(ack.payload).nbytes + len(ack.message)
        if size > _MAX_OUTCOME_BYTES:
            cut_short(ack)
    return acks[:100]


def fault_of(failure: MailFailure, address: str) -> RequestError:
    """Return what somebody is told whose message was not kept, or whose request failed."""
    if isinstance(failure, NotFound):
        return InvalidParams(f"there is no dead letter {failure.id}", member="id")
    if isinstance(failure, KeyReused):
        reason = f"the idempotency key was used for another message, {failure.message_id}"
        return KeyIsTaken(reason, firstMessageId=failure.message_id)
    if isinstance(failure, TooLarge):
        reason = f"sendMessage: a payload that is kept has at most {failure.limit} bytes"
        return InvalidParams(reason, member="payload", limit=failure.limit)
    if isinstance(failure, BoxFull):
        reason = f"mail for {address} is not kept: {failure.limit} (mail.{failure.what})"
        rule = f"mail.{failure.what}"
        return MailboxFull(reason, rule=rule, limit=failure.limit, retrySeconds=_RETRY_SECONDS)
    if isinstance(failure, StoreBusy):
        reason = "the disk is behind with writing mail"
        return MailFailed(reason, rule="mail.busy", retrySeconds=1)
    reason = "mail cannot be written; the log of the bus has the details"
    return MailFailed(reason, rule="mail.failed", retrySeconds=_RETRY_SECONDS)
