"""Mail expires, whatever the clock does."""

from __future__ import annotations

import pytest

from busd.bus.mail_policy import MailSettings
from busd.errors import CallRefused
from busd.testing import MemoryBus
from tests.bus.mail.disk_bus import ATTEMPTS, DURABLE, DiskBus, ack_all

DAY = 86_400.0


def ttl(seconds: object) -> dict[str, object]:
    return {"durable": True, "ttlSeconds": seconds}


@pytest.mark.parametrize(
    "seconds", [-1, 0, -0.0, 10**9, 1e308, 10**400, "60", "", [], {}, True, 30 * DAY + 1]
)
def test_a_ttl_that_is_none_is_refused_and_nothing_is_kept(seconds: object) -> None:
    bus = MemoryBus(mail=MailSettings())
    worker = bus.join("agent:w")
    chat = bus.join("tg:1")
    with pytest.raises(CallRefused) as refused:
        chat.send("agent:w", {"n": 1}, delivery=ttl(seconds)).check()
    assert refused.value.code == -32602
    assert not worker.inbox
    assert bus.store.totals.count == 0
    assert chat.is_connected


def test_a_ttl_over_the_limit_names_the_limit() -> None:
    bus = MemoryBus(mail=MailSettings(max_ttl_seconds=60))
    with pytest.raises(CallRefused) as refused:
        bus.join("tg:1").send("agent:w", {"n": 1}, delivery=ttl(61)).check()
    assert refused.value.data["limit"] == 60  # type: ignore[index]


@pytest.mark.parametrize("seconds", [0.001, 1, 59.5, 30 * DAY])
def test_any_ttl_within_the_limits_is_accepted(seconds: float) -> None:
    bus = MemoryBus(mail=MailSettings())
    sent = bus.join("tg:1").send("agent:w", {"n": 1}, delivery=ttl(seconds))
    assert sent.result.undelivered == "kept"


def test_mail_that_nobody_came_for_becomes_a_dead_letter() -> None:
    disk_bus = DiskBus()
    disk_bus.join("tg:1").send("agent:w", {"n": 1}, delivery=ttl(60))
    disk_bus.settle()
    disk_bus.advance(59)
    assert len(disk_bus.kept) == 1
    disk_bus.advance(3)
    assert [letter.mail.reason for letter in disk_bus.dead] == ["expired"]
    assert not disk_bus.join("agent:w").inbox


def test_mail_without_a_ttl_expires_after_the_time_set() -> None:
    disk_bus = DiskBus(MailSettings(ttl_seconds=60))
    disk_bus.join("tg:1").send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    disk_bus.advance(62)
    assert len(disk_bus.dead) == 1


def test_what_expires_in_masses_does_not_hold_up_the_mail_of_others() -> None:
    disk_bus = DiskBus()
    flood, chat = disk_bus.join("app:flood"), disk_bus.join("tg:1")
    for number in range(3_000):
        flood.send(f"agent:{number}", {"n": number}, delivery=ttl(1))
    for number, seconds in enumerate((1.1, DAY)):
        chat.send("agent:w", {"n": number}, delivery=ttl(seconds))
    disk_bus.settle()
    disk_bus.wall_clock.now += 2
    worker = disk_bus.join("agent:w")
    disk_bus.advance(3)
    assert ack_all(worker) == [1]
    assert len(disk_bus.dead) == 3_001


def test_what_has_expired_is_not_handed_over_though_nobody_has_looked_yet() -> None:
    disk_bus = DiskBus()
    disk_bus.join("tg:1").send("agent:w", {"n": 1}, delivery=ttl(60))
    disk_bus.settle()
    disk_bus.wall_clock.now += 61
    assert not disk_bus.join("agent:w").inbox
    disk_bus.advance(2)
    assert len(disk_bus.dead) == 1


def test_a_sender_that_waits_is_told_that_its_message_has_expired() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    sent = chat.send("agent:w", {"n": 1}, delivery=ttl(10), message_id="m")
    disk_bus.settle()
    worker.next_message().fail("not yet", retry_seconds=30)
    disk_bus.advance(12)
    assert sent.result.mail is not None
    assert sent.result.mail.state == "expired"
    again = chat.send("agent:w", {"n": 1}, delivery=ttl(10), message_id="m")
    disk_bus.settle()
    assert again.result.mail is not None
    assert again.result.mail.state == "expired"


def test_what_expires_in_flight_and_is_acked_then_is_no_dead_letter() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    chat.send("agent:w", {"n": 1}, delivery=ttl(10), message_id="m")
    disk_bus.settle()
    disk_bus.advance(12)
    assert len(disk_bus.dead) == 1
    worker.next_message().ack({"done": 1})
    disk_bus.settle()
    assert (disk_bus.kept, disk_bus.dead) == ([], [])
    again = chat.send("agent:w", {"n": 1}, delivery=ttl(10), message_id="m")
    disk_bus.settle()
    assert again.result.mail is not None
    assert again.result.mail.state == "acked"


@pytest.mark.parametrize("answer", ["refuse", "retry", "leave", "silence"])
def test_what_expires_in_flight_and_is_not_acked_is_one_dead_letter(answer: str) -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    chat.send("agent:w", {"n": 1}, delivery=ttl(10), message_id="m")
    disk_bus.settle()
    message = worker.next_message()
    disk_bus.advance(12)
    if answer == "refuse":
        message.fail("never")
    elif answer == "retry":
        message.fail("later", retry_seconds=1)
    elif answer == "leave":
        worker.leave()
    disk_bus.advance(70)
    assert not disk_bus.join("agent:w").inbox
    assert [letter.mail.reason for letter in disk_bus.dead] == ["expired"]
    assert disk_bus.bus.mailboxes.counts["expired"] == 1
    again = chat.send("agent:w", {"n": 1}, delivery=ttl(10), message_id="m")
    disk_bus.settle()
    assert again.result.mail is not None
    assert again.result.mail.state == "expired"


def test_what_is_acked_while_the_disk_lets_it_expire_is_no_dead_letter() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    chat.send("agent:w", {"n": 1}, delivery=ttl(10), message_id="m")
    disk_bus.settle()
    disk_bus.wall_clock.now += 11
    disk_bus.bus.advance(1)  # the disk is told to let it expire
    worker.next_message().ack({"done": 1})
    disk_bus.settle()
    assert (disk_bus.kept, disk_bus.dead) == ([], [])
    again = chat.send("agent:w", {"n": 1}, delivery=ttl(10), message_id="m")
    disk_bus.settle()
    assert again.result.mail is not None
    assert again.result.mail.state == "acked"


def test_a_clock_that_jumps_forward_by_a_day_expires_only_what_had_less_left() -> None:
    disk_bus = DiskBus()
    chat = disk_bus.join("tg:1")
    chat.send("agent:w", {"n": 1}, delivery=ttl(DAY / 2))
    chat.send("agent:w", {"n": 2}, delivery=ttl(2 * DAY))
    disk_bus.settle()
    disk_bus.wall_clock.now += DAY
    disk_bus.advance(2)
    assert [letter.mail.payload for letter in disk_bus.dead] == [b'{"n":1}']
    assert ack_all(disk_bus.join("agent:w")) == [2]


@pytest.mark.parametrize("jump", [-DAY, DAY])
def test_a_clock_that_jumps_by_a_day_does_not_delay_a_retry(jump: float) -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w", extensions=ATTEMPTS)
    chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker.next_message().fail("later", retry_seconds=5)
    disk_bus.settle()
    disk_bus.wall_clock.now += jump
    disk_bus.advance(5.5)
    assert ack_all(worker) == [1]


def test_a_clock_that_jumps_back_by_a_day_delays_a_retry_after_a_restart_little() -> None:
    disk_bus = DiskBus(MailSettings(max_retry_seconds=300))
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker.next_message().fail("later", retry_seconds=5)
    disk_bus.settle()
    disk_bus.wall_clock.now -= DAY
    disk_bus.crash()
    worker = disk_bus.join("agent:w")
    start = disk_bus.clock.now
    while not worker.inbox and disk_bus.clock.now < start + 301:
        disk_bus.advance(5)
    assert ack_all(worker) == [1]


def test_a_clock_that_jumps_forward_and_back_again_loses_nothing() -> None:
    disk_bus = DiskBus()
    disk_bus.join("tg:1").send("agent:w", {"n": 1}, delivery=ttl(DAY / 2))
    disk_bus.settle()
    disk_bus.wall_clock.now += DAY
    worker = disk_bus.join("agent:w")  # too late for it, and the disk has not been told
    disk_bus.wall_clock.now -= DAY
    disk_bus.advance(30)
    assert ack_all(worker) == [1]


def test_an_address_is_known_whatever_the_clock_does() -> None:
    disk_bus = DiskBus()
    chat = disk_bus.join("tg:1")
    for jump in (DAY, -2 * DAY, DAY):
        disk_bus.join("agent:w").leave()
        disk_bus.wall_clock.now += jump
        sent = chat.send("agent:w", {"n": 1})
        disk_bus.settle()
        assert sent.result.undelivered == "kept"
