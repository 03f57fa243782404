"""How often and when a delivery is tried again, and what ends that."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from busd.bus.delivery import DeliveryLimits
from busd.bus.mail_policy import MailSettings
from busd.testing import MemoryBus, ScriptedPeer
from tests.bus.mail.disk_bus import ATTEMPTS, DURABLE, DiskBus, ack_all

SETTINGS = MailSettings(max_attempts=4, first_retry_seconds=8, max_retry_seconds=20)


@pytest.fixture
def disk_bus() -> DiskBus:
    return DiskBus(SETTINGS)


def joined(disk_bus: DiskBus) -> tuple[ScriptedPeer, ScriptedPeer]:
    """Return a sender and a worker that sees attempts."""
    return disk_bus.join("tg:1"), disk_bus.join("agent:w", extensions=ATTEMPTS)


def test_an_addressee_names_the_time_of_the_next_attempt(disk_bus: DiskBus) -> None:
    chat, worker = joined(disk_bus)
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker.next_message().fail("not yet", retry_seconds=30)
    disk_bus.advance(29.5)
    assert not worker.inbox
    disk_bus.advance(0.75)
    again = worker.next_message()
    assert again.delivery_attempt == 2
    again.ack({"n": 1})
    assert sent.result.undelivered is None
    assert [ack.success for ack in sent.result.acks] == [True]
    assert sent.result.mail is not None
    assert (sent.result.mail.state, sent.result.mail.attempts) == ("acked", 2)


def test_a_sender_that_waits_is_told_to_wait_if_the_next_attempt_is_too_late(
    disk_bus: DiskBus,
) -> None:
    chat, worker = joined(disk_bus)
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker.next_message().fail("not yet", retry_seconds=61)
    receipt = sent.result
    assert receipt.undelivered == "retrying"
    assert [ack.message for ack in receipt.acks] == ["not yet"]
    assert receipt.mail is not None
    assert (receipt.mail.state, receipt.mail.attempts) == ("retrying", 1)
    disk_bus.advance(62)
    worker.next_message().ack()
    disk_bus.settle()
    assert not disk_bus.kept


def test_a_sender_hears_retrying_when_its_time_is_up(disk_bus: DiskBus) -> None:
    chat, worker = joined(disk_bus)
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker.next_message().fail("not yet", retry_seconds=40)
    disk_bus.advance(41)
    worker.next_message()
    disk_bus.advance(18)
    assert not sent.is_done
    disk_bus.advance(2)
    assert sent.result.undelivered == "retrying"
    assert [ack.message for ack in sent.result.acks] == ["not yet"]


def test_pauses_double_up_to_the_longest_with_jitter(disk_bus: DiskBus) -> None:
    chat, worker = joined(disk_bus)
    chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    pauses = []
    for _ in range(3):
        worker.next_message().answer_raw(b'{"success":false,"shouldRetry":true}')
        start = disk_bus.clock.now
        while not worker.inbox:
            disk_bus.advance(0.25)
        pauses.append(disk_bus.clock.now - start)
    for pause, most in zip(pauses, (8, 16, 20), strict=True):
        assert most * 0.75 <= pause <= most + 0.5


def test_jitter_makes_pauses_differ(disk_bus: DiskBus) -> None:
    policy = disk_bus.bus.mailboxes.policy
    assert len({policy.retry_seconds(1) for _ in range(20)}) > 10
    assert all(0 < policy.retry_seconds(attempts) <= 20 for attempts in (1, 2, 3, 100, 10**9))


def test_after_the_last_attempt_it_is_a_dead_letter_with_the_last_reason(
    disk_bus: DiskBus,
) -> None:
    chat, worker = joined(disk_bus)
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    for attempt in range(1, 5):
        worker.next_message().fail(f"no {attempt}", retry_seconds=1)
        disk_bus.advance(2)
    assert not worker.inbox
    assert not disk_bus.kept
    [letter] = disk_bus.dead
    assert (letter.mail.reason, letter.mail.attempts) == ("no 4", 4)
    assert sent.result.mail is not None
    assert (sent.result.mail.state, sent.result.mail.attempts) == ("dead", 4)
    assert [ack.message for ack in sent.result.acks] == ["no 4"]
    assert sent.result.undelivered is None


def test_a_permanent_refusal_that_its_sender_is_told_is_not_tried_again(
    disk_bus: DiskBus,
) -> None:
    chat, worker = joined(disk_bus)
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker.next_message().fail("never")
    disk_bus.settle()
    assert sent.result.mail is not None
    assert sent.result.mail.state == "refused"
    assert [ack.message for ack in sent.result.acks] == ["never"]
    disk_bus.advance(60)
    assert not worker.inbox
    assert (disk_bus.kept, disk_bus.dead) == ([], [])


def test_a_permanent_refusal_that_nobody_is_told_is_a_dead_letter(disk_bus: DiskBus) -> None:
    chat = disk_bus.join("tg:1")
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    assert sent.result.undelivered == "kept"
    worker = disk_bus.join("agent:w")
    worker.next_message().fail("never")
    disk_bus.advance(60)
    assert not worker.inbox
    assert [letter.mail.reason for letter in disk_bus.dead] == ["never"]


@pytest.mark.parametrize(
    "answer",
    [
        b"17",
        b'{"success":"yes"}',
        b"[]",
        b'{"success":false,"retrySeconds":5}',
        b'{"success":false,"shouldRetry":true,"retrySeconds":"5"}',
    ],
)
def test_other_failures_are_not_tried_again(disk_bus: DiskBus, answer: bytes) -> None:
    chat, worker = joined(disk_bus)
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker.next_message().answer_raw(answer)
    assert sent.result.mail is not None
    assert sent.result.mail.state == "refused"


@pytest.mark.parametrize(
    "seconds", [b"-5", b"0", b"1e308", b"1e400", b"1" + b"0" * 400, b"-1e308", b"0.0001"]
)
def test_any_number_of_seconds_until_the_next_attempt_is_survived(
    disk_bus: DiskBus, seconds: bytes
) -> None:
    chat, worker = joined(disk_bus)
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    answer = b'{"success":false,"message":"odd","shouldRetry":true,"retrySeconds":%s}' % seconds
    worker.next_message().answer_raw(answer)
    disk_bus.advance(61)
    assert sent.is_done
    assert worker.is_connected
    is_refused = b'"refused"' in sent.raw  # the number as such may be malformed
    assert len(disk_bus.kept) + len(disk_bus.dead) + is_refused == 1
    disk_bus.crash()
    worker = disk_bus.join("agent:w")
    disk_bus.advance(61)
    assert len(disk_bus.kept) + len(disk_bus.dead) <= 1


def test_mail_that_expired_before_its_next_attempt_leaves_nothing_in_memory() -> None:
    disk_bus = DiskBus()
    chat, worker = joined(disk_bus)
    for number in range(1_500):
        chat.send("agent:w", {"n": number}, delivery={"durable": True, "ttlSeconds": 1})
        disk_bus.settle()
        worker.next_message().fail("in a month", retry_seconds=30 * 86_400)
        if number % 500 == 499:
            disk_bus.advance(2.5)
    assert len(disk_bus.dead) == 1_500
    assert len(disk_bus.bus.mailboxes.rounds._timers) < 1_000


def test_retries_survive_a_restart(disk_bus: DiskBus) -> None:
    chat, worker = joined(disk_bus)
    chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker.next_message().fail("not yet", retry_seconds=10)
    disk_bus.settle()
    disk_bus.crash()
    worker = disk_bus.join("agent:w", extensions=ATTEMPTS)
    disk_bus.advance(9)
    assert not worker.inbox
    disk_bus.advance(1.5)
    message = worker.next_message()
    assert message.delivery_attempt == 2
    message.ack()
    disk_bus.settle()
    assert not disk_bus.kept


def test_attempts_of_earlier_runs_count(disk_bus: DiskBus) -> None:
    disk_bus.join("tg:1").send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    for attempt in range(1, 5):
        worker = disk_bus.join("agent:w", extensions=ATTEMPTS)
        message = worker.next_message()
        assert (message.delivery_attempt or 1) == attempt
        message.fail(f"no {attempt}", retry_seconds=0)
        disk_bus.store.sync()
        disk_bus.crash()
    assert [letter.mail.reason for letter in disk_bus.dead] == ["no 4"]


def test_silence_is_tried_again_after_a_pause() -> None:
    settings = replace(SETTINGS, ack_seconds=5.0)
    disk_bus = DiskBus(settings, DeliveryLimits(ack_seconds=5))
    chat, worker = joined(disk_bus)
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker.next_message()
    disk_bus.advance(5.75)
    assert sent.result.undelivered == "retrying"
    assert not worker.inbox
    disk_bus.advance(9)
    message = worker.next_message()
    assert message.delivery_attempt == 2
    message.ack()
    disk_bus.settle()
    assert not disk_bus.kept


def test_a_peer_that_works_for_longer_than_a_sender_waits_gets_its_message_once() -> None:
    disk_bus = DiskBus(replace(SETTINGS, ack_seconds=300.0), DeliveryLimits(ack_seconds=5))
    chat, worker = joined(disk_bus)
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    message = worker.next_message()
    disk_bus.advance(60)
    assert sent.result.undelivered == "kept"
    assert not worker.inbox
    message.ack()  # an existing agent answers after its turn
    disk_bus.settle()
    assert not disk_bus.kept


def test_others_are_delivered_while_one_waits_for_its_next_attempt(disk_bus: DiskBus) -> None:
    chat, worker = joined(disk_bus)
    for number in (1, 2, 3):
        chat.send("agent:w", {"n": number}, delivery=DURABLE)
    disk_bus.settle()
    worker.next_message().fail("not yet", retry_seconds=10)
    assert ack_all(worker) == [2, 3]
    disk_bus.advance(11)
    assert ack_all(worker) == [1]


def test_thousands_that_wait_for_their_next_attempts_are_all_tried_again() -> None:
    bus = MemoryBus(mail=MailSettings())
    chat, worker = bus.join("tg:1"), bus.join("agent:w")
    for number in range(2_500):
        chat.send("agent:w", {"n": number}, delivery=DURABLE)
    for _ in range(100):
        while worker.inbox:
            worker.next_message().fail("not yet", retry_seconds=30)
        bus.advance(0.25)
    acked: set[object] = set()
    for _ in range(800):
        acked |= set(ack_all(worker))
        bus.advance(0.25)
    assert acked == set(range(2_500))
    assert bus.store.totals.count == bus.store.totals.dead == 0


def test_mail_that_was_put_off_and_comes_back_while_its_peer_leaves_is_not_forgotten() -> None:
    disk_bus = DiskBus(SETTINGS, DeliveryLimits(max_unanswered=2))
    chat, worker = joined(disk_bus)
    for number in range(4):
        chat.send("agent:w", {"n": number}, delivery=DURABLE)
    disk_bus.settle()
    for _ in range(2):
        worker.next_message().fail("not yet", retry_seconds=3)
    disk_bus.settle()
    disk_bus.advance(3.5)  # the first two come back and wait behind the others
    worker.leave()
    disk_bus.settle()
    worker = disk_bus.join("agent:w")
    seen: list[object] = []
    for _ in range(30):
        seen += ack_all(worker)
        disk_bus.advance(1)
    assert sorted(seen, key=str) == [0, 1, 2, 3]
    assert not disk_bus.kept


def test_peers_that_join_while_the_store_fails_get_their_mail_when_it_works() -> None:
    disk_bus = DiskBus(SETTINGS)
    disk_bus.join("tg:1").send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    disk_bus.bus.sweep()
    disk_bus.fail()
    worker = disk_bus.join("agent:w")  # and it works again before anybody looks
    disk_bus.advance(2)
    assert ack_all(worker) == [1]
