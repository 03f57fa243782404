"""Faults to plant in the mailboxes, one at a time: the simulation must find each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from busd.bus import mailbox as mailbox_module
from busd.bus.mail import StoreFailed
from busd.bus.mail_attempt import QueuedMail
from busd.bus.mail_senders import Senders
from busd.bus.mail_state import MailState
from busd.bus.mail_verdict import Verdict, verdict_of
from busd.bus.mailbox import Mailbox
from busd.bus.mailboxes import Mailboxes
from busd.bus.peer import RemotePeer
from busd.bus.routes import Routes
from busd.mail.memory import MemoryTables

Plant = Callable[[pytest.MonkeyPatch], None]


def answers_before_it_is_written(patch: pytest.MonkeyPatch) -> None:
    keep = Mailboxes.keep

    def hasty(self: Mailboxes, message: Any, asker: Any, request_id: Any, *rest: Any) -> None:
        before = self.store.waiting
        keep(self, message, asker, request_id, *rest)
        if self.store.waiting > before and not self.bus.routes.answering(message.to):
            receipt: dict[str, Any] = {
                "accepted": True,
                "messageId": message.message_id or "msg_1",
                "acks": [],
            }
            mail = {"id": 1, "state": "kept"}
            asker.answer(request_id, receipt | {"undelivered": "kept", "mail": mail})

    patch.setattr(Mailboxes, "keep", hasty)


def records_no_attempts(patch: pytest.MonkeyPatch) -> None:
    def pretend(self: Mailbox) -> None:
        for item in self.queue:
            item.recorded = item.made + 1
        self.room.call_at(self.room.bus.clock(), self)

    patch.setattr(Mailbox, "_note_attempts", pretend)


def never_shows_attempts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mailbox_module, "_with_attempt", lambda message, number: message)


def shows_attempts_to_everybody(patch: pytest.MonkeyPatch) -> None:
    hand_over = RemotePeer.hand_over

    def always(self: RemotePeer, message: Any, frame: bytes, delivery: Any) -> None:
        self.shows_attempts = True
        hand_over(self, message, frame, delivery)

    patch.setattr(RemotePeer, "hand_over", always)


def settles_when_an_observer_accepts(patch: pytest.MonkeyPatch) -> None:
    def lenient(acks: Any, names: frozenset[str]) -> Verdict:
        return verdict_of(acks, frozenset(ack.client_id for ack in acks))

    patch.setattr(mailbox_module, "verdict_of", lenient)


def tries_refused_mail_again(patch: pytest.MonkeyPatch) -> None:
    def stubborn(acks: Any, names: frozenset[str]) -> Verdict:
        verdict = verdict_of(acks, names)
        return replace(verdict, event="postponed") if verdict.event == "refused" else verdict

    patch.setattr(mailbox_module, "verdict_of", stubborn)


def gives_up_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Mailbox, "_try_again", lambda self, item, acks, verdict: None)


def never_settles(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Mailbox, "_write_on", lambda self: None)


def forgets_acks_that_were_not_written(patch: pytest.MonkeyPatch) -> None:
    on_removed = Mailbox._on_removed

    def forgetful(self: Mailbox, number: int, outcome: object) -> None:
        on_removed(self, number, None if isinstance(outcome, StoreFailed) else outcome)

    patch.setattr(Mailbox, "_on_removed", forgetful)


def skips_what_comes_back(patch: pytest.MonkeyPatch) -> None:
    def skipping(self: Mailbox, number: int) -> None:
        self._last_read = max(self._last_read, number)
        self.queue.clear()
        self.has_more = True

    patch.setattr(Mailbox, "_rewind", skipping)


def reverses_the_queue(patch: pytest.MonkeyPatch) -> None:
    queue_read = Mailbox._queue_read

    def reversing(self: Mailbox, mail: Any) -> None:
        queue_read(self, mail)
        self.queue.rotate(1)

    patch.setattr(Mailbox, "_queue_read", reversing)


def lets_plain_messages_overtake(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Routes, "divert", lambda self, address, *, is_diverted: None)


def leaves_dead_letters_of_what_was_acked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Mailboxes, "on_late_answer", lambda self, item, acks: None)


def knows_no_duplicates(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryTables, "find_key", lambda self, sender, key: None)


def answers_twice(patch: pytest.MonkeyPatch) -> None:
    answer = Senders._answer

    def twice(self: Senders, *given: Any) -> None:
        answer(self, *given)
        answer(self, *given)

    patch.setattr(Senders, "_answer", twice)


def charges_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Senders, "_release", lambda self, waiter: None)


def tells_that_all_is_acked(patch: pytest.MonkeyPatch) -> None:
    answer = Senders._answer

    def boastful(self: Senders, waiter: Any, number: int, state: Any, attempts: int) -> None:
        answer(self, waiter, number, MailState.ACKED, attempts)

    patch.setattr(Senders, "_answer", boastful)


def hands_over_what_is_not_next(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Mailbox, mail: Any) -> None:
        self.queue.appendleft(QueuedMail(self, mail, 0))
        self.pump()

    patch.setattr(Mailbox, "take", wrong)


def leaves_mail_when_the_store_works_again(patch: pytest.MonkeyPatch) -> None:
    never = property(lambda self: False, lambda self, is_so: None)
    patch.setattr(Mailboxes, "_was_failing", never, raising=False)


FAULTS: list[Plant] = [
    answers_before_it_is_written,
    records_no_attempts,
    never_shows_attempts,
    shows_attempts_to_everybody,
    settles_when_an_observer_accepts,
    tries_refused_mail_again,
    gives_up_at_once,
    never_settles,
    forgets_acks_that_were_not_written,
    skips_what_comes_back,
    reverses_the_queue,
    lets_plain_messages_overtake,
    leaves_dead_letters_of_what_was_acked,
    knows_no_duplicates,
    answers_twice,
    charges_for_ever,
    tells_that_all_is_acked,
    hands_over_what_is_not_next,
    leaves_mail_when_the_store_works_again,
]
