"""Mail is handed over at the pace of its addressee, and memory holds little of what waits."""

from __future__ import annotations

import tracemalloc

import pytest

from busd.bus.delivery import DeliveryLimits
from busd.bus.local import LocalPeer
from busd.bus.mail_policy import MailSettings
from busd.bus.message import Ack, HandedMessage
from busd.testing import MemoryBus
from busd.wire.connection import WireLimits
from tests.bus.mail.disk_bus import ATTEMPTS, DURABLE, DiskBus, ack_all

MANY = 50_000
ROOMY = MailSettings(box_count=MANY, box_bytes=1 << 30, identity_bytes=1 << 30)


def keep(bus: MemoryBus, count: int, text: str = "") -> None:
    chat = bus.join("tg:1")
    for number in range(count):
        chat.send("agent:w", {"n": number, "text": text}, delivery=DURABLE)
    chat.leave()


def test_a_peer_that_does_not_answer_gets_few() -> None:
    bus = MemoryBus(mail=MailSettings())
    keep(bus, 1_000)
    worker = bus.join("agent:w")
    bus.advance(30)
    assert len(worker.inbox) == 8


def test_a_quick_peer_gets_more_and_more_at_once() -> None:
    bus = MemoryBus(mail=MailSettings())
    keep(bus, 3_000)
    worker = bus.join("agent:w")
    most = 0
    seen = []
    while worker.inbox:
        most = max(most, len(worker.inbox))
        message = worker.inbox.popleft()
        seen.append(message.payload["n"])
        message.ack()
    assert seen == list(range(3_000))
    assert 200 < most <= 256


def test_a_slow_peer_never_gets_more() -> None:
    bus = MemoryBus(mail=MailSettings())
    keep(bus, 200)
    worker = bus.join("agent:w")
    for _ in range(20):
        bus.advance(10)
        worker.next_message().ack()
        assert len(worker.inbox) <= 8


def test_a_peer_that_was_silent_gets_one_at_a_time() -> None:
    bus = MemoryBus(DeliveryLimits(ack_seconds=5), mail=MailSettings(max_retry_seconds=1))
    keep(bus, 100)
    worker = bus.join("agent:w")
    for _ in range(4):
        bus.advance(5)
    assert len(worker.inbox) <= 8 + 4


def test_large_messages_are_in_flight_within_a_bound_of_bytes() -> None:
    bus = MemoryBus(mail=MailSettings())
    keep(bus, 40, "x" * 500_000)
    worker = bus.join("agent:w")
    seen = []
    while worker.inbox:
        assert len(worker.inbox) <= 3
        seen += [worker.inbox[0].payload["n"]]
        worker.next_message().ack()
    assert seen == list(range(40))


def test_a_busy_peer_gets_the_rest_later_in_order_and_each_once() -> None:
    bus = MemoryBus(DeliveryLimits(max_unanswered=3), mail=MailSettings())
    keep(bus, 20)
    worker = bus.join("agent:w", extensions=ATTEMPTS)
    seen = []
    for _ in range(60):
        while worker.inbox:
            message = worker.next_message()
            seen.append((message.payload["n"], message.delivery_attempt))
            message.ack()
        bus.advance(1)
    assert seen == [(number, None) for number in range(20)]


def test_being_busy_for_long_costs_no_attempts() -> None:
    disk_bus = DiskBus(MailSettings(max_attempts=3), DeliveryLimits(max_unanswered=1))
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w", extensions=ATTEMPTS)
    other = chat.send("agent:w", {"n": 0})
    disk_bus.settle()
    busy_with = worker.next_message()
    chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.advance(50)
    assert [mail.attempts for mail in disk_bus.kept] == [1]
    busy_with.ack()
    assert other.is_done
    disk_bus.advance(2)
    message = worker.next_message()
    assert message.delivery_attempt is None
    message.fail("later", retry_seconds=1)
    disk_bus.advance(2)
    assert worker.next_message().delivery_attempt == 2
    assert not disk_bus.dead


def test_a_peer_that_is_busy_does_not_excuse_another_that_wants_it_later() -> None:
    disk_bus = DiskBus(MailSettings(max_attempts=3), DeliveryLimits(max_unanswered=1))
    chat = disk_bus.join("tg:1")
    busy = disk_bus.join("agent:w", subscribe=["busy"])
    worker = disk_bus.join("agent:w", extensions=ATTEMPTS)
    chat.send("busy", {"n": 0})
    busy.inbox.clear()
    chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    attempts = []
    for _ in range(20):
        while worker.inbox:
            message = worker.next_message()
            attempts.append(message.delivery_attempt)
            message.fail("later", retry_seconds=1)
        disk_bus.advance(2)
    assert attempts == [None, 2, 3]
    assert [letter.mail.reason for letter in disk_bus.dead] in (["later"], ["peer is busy"])


def test_a_clogged_peer_gets_the_rest_when_it_reads_on() -> None:
    bus = MemoryBus(wire=WireLimits(max_queue_bytes=20_000), mail=MailSettings())
    keep(bus, 100, "x" * 9_000)
    worker = bus.join("agent:w", extensions=ATTEMPTS)
    worker.stop_reading()
    seen: list[object] = ack_all(worker)
    bus.advance(20)
    worker.read_on()
    for _ in range(100):
        while worker.inbox:
            assert worker.inbox[0].delivery_attempt is None
            seen += [worker.inbox[0].payload["n"]]
            worker.next_message().ack()
        bus.advance(1)
    assert seen == list(range(100))


def test_a_message_that_is_too_large_for_its_addressee_is_refused() -> None:
    bus = MemoryBus(mail=MailSettings())
    chat, worker = bus.join("tg:1"), bus.join("agent:w")
    [peer] = bus.core.present("agent:w")
    peer.max_frame_bytes = 1_000
    sent = chat.send("agent:w", {"text": "x" * 2_000}, delivery=DURABLE)
    assert [ack.outcome for ack in sent.result.acks] == ["too_large"]
    assert not worker.inbox
    assert bus.store.totals.count == 0


def test_a_peer_in_the_process_that_answers_at_once_gets_any_number() -> None:
    bus = MemoryBus(mail=MailSettings())
    keep(bus, 2_000)
    seen: list[int] = []

    def take(call_id: int, message: HandedMessage) -> bool:
        seen.append(call_id)
        peer.answer(call_id, Ack())
        return True

    peer = LocalPeer("agent:w", bus.core, take)
    bus.run(lambda: bus.core.join(peer))
    assert len(seen) == 2_000
    assert bus.store.totals.count == 0


@pytest.fixture(scope="module")
def crowded() -> MemoryBus:
    bus = MemoryBus(mail=ROOMY)
    keep(bus, MANY, "x" * 200)
    return bus


def test_nothing_of_a_mailbox_with_50_000_messages_is_in_memory(crowded: MemoryBus) -> None:
    assert crowded.store.totals.count == MANY
    assert not crowded.mailboxes.boxes
    assert list(crowded.mailboxes.dormant) == ["agent:w"]
    assert not crowded.mailboxes.senders._waiters
    crowded.advance(70)
    assert not crowded.mailboxes.senders._deadlines


def test_a_mailbox_with_50_000_messages_is_read_in_pages(
    crowded: MemoryBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[str] = []
    submit = crowded.mailboxes.submit

    def counted(operation: object, done: object) -> None:
        submitted.append(type(operation).__name__)
        submit(operation, done)  # type: ignore[arg-type]

    monkeypatch.setattr(crowded.mailboxes, "submit", counted)
    worker = crowded.join("agent:w")
    box = crowded.mailboxes.boxes["agent:w"]
    assert len(submitted) < 20
    acked = 0
    tracemalloc.start()
    while acked < 300:
        worker.next_message().ack()
        acked += 1
        assert len(box.queue) + len(box.in_flight) <= 100 + 256
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 3_000_000
    assert submitted.count("Read") <= 10
    assert submitted.count("SettleOne") == 300
    assert submitted.count("NoteAttempt") <= 300 + 2 * 256
    worker.leave()
    assert len(box.queue) + len(box.in_flight) == 0
