"""A message that may have been handed over before says so, to those who want to know."""

from __future__ import annotations

import pytest

from busd.bus.mail_policy import MailSettings
from busd.testing import MemoryBus
from tests.bus.mail.disk_bus import ATTEMPTS, DURABLE, DiskBus, ack_all

V2_MEMBERS = {"from", "to", "messageId", "payload"}


def test_mail_of_a_peer_that_left_is_handed_to_the_next_with_a_flag() -> None:
    bus = MemoryBus(mail=MailSettings())
    sent = bus.join("tg:1").send("agent:w", {"n": 1}, delivery=DURABLE)
    attempts = []
    for _ in range(4):
        worker = bus.join("agent:w", extensions=ATTEMPTS)
        attempts.append(worker.next_message().delivery_attempt)
        worker.leave()
    assert attempts == [None, 2, 3, 4]
    bus.join("agent:w").next_message().ack()
    assert bus.store.totals.count == 0
    assert sent.result.undelivered == "kept"


def test_a_sender_that_waits_is_told_when_its_addressee_left() -> None:
    bus = MemoryBus(mail=MailSettings())
    chat, worker = bus.join("tg:1"), bus.join("agent:w")
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    worker.leave()
    receipt = sent.result
    assert receipt.undelivered == "retrying"
    assert [ack.outcome for ack in receipt.acks] == ["lost"]
    assert receipt.mail is not None
    assert (receipt.mail.state, receipt.mail.attempts) == ("unknown", 1)


def test_another_peer_that_answers_gets_it_at_once_and_its_sender_the_outcome() -> None:
    bus = MemoryBus(mail=MailSettings())
    chat, worker = bus.join("tg:1"), bus.join("agent:w")
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    other = bus.join("agent:w", extensions=ATTEMPTS)
    worker.leave()
    assert not sent.is_done
    message = other.next_message()
    assert message.delivery_attempt == 2
    message.ack()
    assert sent.result.mail is not None
    assert (sent.result.mail.state, sent.result.mail.attempts) == ("acked", 2)


@pytest.mark.parametrize("extensions", [None, {}, {"deliveryAttempt": False}, {"other": 1}])
def test_a_v2_peer_sees_no_member_that_it_does_not_know(extensions: object) -> None:
    disk_bus = DiskBus()
    chat = disk_bus.join("tg:1")
    options = {"durable": True, "ttlSeconds": 100, "idempotencyKey": "k"}
    chat.send("agent:w", {"n": 1}, delivery=options)
    chat.send("agent:w", {"n": 2}, delivery={"ttlSeconds": 100})
    for _ in range(3):
        worker = disk_bus.join("agent:w", extensions=extensions)
        assert worker.inbox
        assert all(set(message.members) <= V2_MEMBERS for message in worker.inbox)
        worker.leave()
        disk_bus.settle()
    disk_bus.crash()
    worker = disk_bus.join("agent:w", extensions=extensions)
    assert all(set(message.members) <= V2_MEMBERS for message in worker.inbox)
    assert ack_all(worker) == [1]


def test_options_that_ask_for_nothing_leave_a_message_on_its_usual_way() -> None:
    bus = MemoryBus(mail=MailSettings())
    worker = bus.join("agent:w")
    sent = bus.join("tg:1").send("agent:w", {"n": 1}, delivery={"durable": False, "ttlSeconds": 9})
    message = worker.next_message()
    assert set(message.members) == V2_MEMBERS
    message.ack()
    assert sent.result.mail is None


def test_both_kinds_of_peers_get_the_same_redelivery() -> None:
    bus = MemoryBus(mail=MailSettings())
    bus.join("tg:1").send("agent:w", {"n": 1}, delivery=DURABLE)
    bus.join("agent:w").leave()
    new = bus.join("x:new", subscribe=["*"], extensions=ATTEMPTS)
    old = bus.join("x:old", subscribe=["*"])
    bus.join("agent:w").next_message().ack()
    assert new.next_message().delivery_attempt == 2
    assert set(old.next_message().members) == V2_MEMBERS


def test_what_was_handed_over_before_a_crash_is_flagged_and_the_rest_is_not() -> None:
    disk_bus = DiskBus()
    chat = disk_bus.join("tg:1")
    for number in range(12):
        chat.send("agent:w", {"n": number}, delivery=DURABLE)
    disk_bus.settle()
    worker = disk_bus.join("agent:w", extensions=ATTEMPTS)
    handed = [message.payload["n"] for message in worker.inbox]
    assert 0 < len(handed) < 12
    disk_bus.crash()
    worker = disk_bus.join("agent:w", extensions=ATTEMPTS)
    seen = {}
    while worker.inbox:
        message = worker.next_message()
        seen[message.payload["n"]] = message.delivery_attempt
        message.ack()
        disk_bus.settle()
    assert seen == {n: 2 if n in handed else None for n in range(12)}


def test_nothing_is_handed_over_before_it_is_on_the_disk() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    for number in range(2):  # the mailbox is claimed with the first
        sent = chat.send("agent:w", {"n": number}, delivery=DURABLE)
        assert not worker.inbox
        assert not sent.is_done
        disk_bus.settle()
        assert ack_all(worker) == [number]
        assert sent.is_done


def test_an_attempt_is_on_the_disk_before_it_is_made() -> None:
    disk_bus = DiskBus()
    disk_bus.join("tg:1").send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker = disk_bus.bus.join("agent:w")
    while not worker.inbox:
        assert [mail.attempts for mail in disk_bus.kept] in ([0], [1])
        disk_bus.store.sync()
        disk_bus.bus.run(disk_bus.store.deliver)
    assert [mail.attempts for mail in disk_bus.kept] == [1]


def test_what_was_acked_and_not_recorded_is_delivered_again_with_a_flag_after_a_crash() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker.next_message().ack()
    disk_bus.crash(is_synced=False)
    message = disk_bus.join("agent:w", extensions=ATTEMPTS).next_message()
    assert message.delivery_attempt == 2


def test_what_was_acked_and_recorded_is_not_delivered_again() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker.next_message().ack()
    disk_bus.crash(is_synced=True)
    assert not disk_bus.join("agent:w").inbox


def test_a_retried_dead_letter_is_flagged_if_somebody_may_have_had_it() -> None:
    disk_bus = DiskBus(MailSettings(max_attempts=1))
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w", extensions=ATTEMPTS)
    chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker.next_message().fail("not yet", retry_seconds=1)
    disk_bus.settle()
    [letter] = disk_bus.dead
    disk_bus.bus.run(lambda: disk_bus.bus.mailboxes.revive(letter, lambda outcome: None))
    disk_bus.settle()
    assert worker.next_message().delivery_attempt == 2
