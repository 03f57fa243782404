"""Full mailboxes, a disk that is behind or fails: the sender is told, and nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from busd.bus.mail_policy import MailSettings
from busd.errors import CallRefused
from busd.testing import Answer, MemoryBus
from busd.wire.credentials import Credentials
from tests.bus.mail.disk_bus import ATTEMPTS, DURABLE, DiskBus, ack_all

LIMITS: dict[str, Any] = {
    "box_count": 3,
    "box_bytes": 40,
    "identity_count": 3,
    "identity_bytes": 40,
    "total_count": 3,
    "total_bytes": 40,
}


def refusal_of(sent: Answer[Any]) -> dict[str, Any]:
    with pytest.raises(CallRefused) as refused:
        sent.check()
    assert refused.value.code == -32004
    assert isinstance(refused.value.data, dict)
    return refused.value.data


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_that_is_reached_is_named_and_later_there_is_room_again(limit: str) -> None:
    bus = MemoryBus(mail=MailSettings(**{limit: LIMITS[limit]}))
    chat = bus.join("tg:1")
    for number in range(3):
        chat.send("agent:w", {"n": number, "x": 1}, delivery=DURABLE).check()
    data = refusal_of(chat.send("agent:w", {"n": 3, "x": 1}, delivery=DURABLE))
    assert (data["rule"], data["limit"]) == (f"mail.{limit}", LIMITS[limit])
    assert data["retrySeconds"] > 0
    worker = bus.join("agent:w")
    assert ack_all(worker) == [0, 1, 2]
    chat.send("agent:w", {"n": 3, "x": 1}, delivery=DURABLE)
    assert ack_all(worker) == [3]


def test_a_full_mailbox_is_no_matter_of_others() -> None:
    bus = MemoryBus(mail=MailSettings(box_count=1))
    chat = bus.join("tg:1")
    for to in ("agent:a", "agent:b"):
        chat.send(to, {"n": 1}, delivery=DURABLE).check()
        refusal_of(chat.send(to, {"n": 2}, delivery=DURABLE))


def test_a_message_that_is_not_durable_is_refused_by_a_full_mailbox_too() -> None:
    bus = MemoryBus(mail=MailSettings(box_count=1, keep=["agent:*"]))
    chat = bus.join("tg:1")
    chat.send("agent:a", {"n": 1}).check()
    assert refusal_of(chat.send("agent:a", {"n": 2}))["rule"] == "mail.box_count"


def test_a_payload_over_the_limit_is_refused_with_it() -> None:
    bus = MemoryBus(mail=MailSettings())
    chat = bus.join("tg:1")
    payload = {"x": "x" * (1024 * 1024 - 200)}
    assert chat.send("agent:w", payload, delivery=DURABLE).result.undelivered == "kept"


def test_a_disk_that_is_behind_is_told_to_the_sender() -> None:
    disk_bus = DiskBus(MailSettings(waiting_count=5))
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    sent = [chat.send("agent:w", {"n": number}, delivery=DURABLE) for number in range(10)]
    refused = [each for each in sent if each.error]
    assert refused
    assert {refusal_of(each)["rule"] for each in refused} == {"mail.busy"}
    disk_bus.settle()
    assert len(ack_all(worker)) == 10 - len(refused)
    assert all(each.is_done for each in sent)


@pytest.mark.parametrize("limit", [{"waiting_count": 100}, {"waiting_bytes": 64 * 1024}])
def test_a_flood_of_one_identity_leaves_others_room_to_write(limit: dict[str, Any]) -> None:
    disk_bus = DiskBus(MailSettings(**limit))
    flooder = disk_bus.join("tg:1")
    other = disk_bus.bus.connect("tg:2", credentials=Credentials(uid=2, by="unix"))
    other.initialize().check()
    large = {"x": "x" * 2_000}
    sent = [flooder.send("agent:w", large, delivery=DURABLE) for _ in range(150)]
    assert {refusal_of(each)["rule"] for each in sent if each.error} == {"mail.busy"}
    rescued = other.send("agent:w", large, delivery=DURABLE)
    disk_bus.settle()
    assert rescued.result.undelivered == "kept"
    flooder.send("agent:w", large, delivery=DURABLE)
    disk_bus.settle()
    senders = [mail.sender for mail in disk_bus.kept]
    assert senders.count("tg:2") == 1
    assert 10 < len(senders) < 60


def test_what_the_disk_could_not_write_is_not_delivered_and_its_sender_is_told() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    for is_claimed in (False, True):
        sent = chat.send("agent:w", {"n": is_claimed}, delivery=DURABLE)
        disk_bus.fail()
        data = refusal_of(sent)
        assert data["rule"] == "mail.failed"
        assert data["retrySeconds"] > 0
        disk_bus.advance(10)
        assert not worker.inbox
        again = chat.send("agent:w", {"n": is_claimed}, delivery=DURABLE)
        disk_bus.settle()
        assert ack_all(worker) == [is_claimed]
        assert again.result.mail is not None
        assert again.result.mail.state == "acked"
        disk_bus.settle()
        assert not disk_bus.kept


def test_an_ack_that_the_disk_could_not_write_is_written_later_and_nothing_is_repeated() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker.next_message().ack()
    for _ in range(3):
        disk_bus.fail()
        disk_bus.bus.advance(2)
    disk_bus.advance(5)
    assert not worker.inbox
    assert not disk_bus.kept


def test_an_ack_that_was_not_written_before_a_read_failed_too_is_written_later() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    for number in range(30):
        chat.send("agent:w", {"n": number}, delivery=DURABLE)
    disk_bus.settle()
    acked = []
    while worker.inbox:
        message = worker.next_message()
        acked.append(message.payload["n"])
        message.ack()
        disk_bus.fail()
    disk_bus.bus.advance(5)
    for _ in range(20):
        acked += ack_all(worker)
        disk_bus.advance(2)
    assert acked == list(range(30))
    assert not disk_bus.kept


def test_an_ack_that_the_disk_could_not_write_does_not_hold_up_what_comes() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    chat.send("agent:w", {"n": 0}, delivery=DURABLE)
    disk_bus.settle()
    worker.next_message().ack()
    disk_bus.fail()
    for number in range(1, 10):
        disk_bus.bus.advance(0.5)
        disk_bus.fail()
        sent = chat.send("agent:w", {"n": number})
        assert ack_all(worker) == [number]
        assert sent.result.acks[0].success
    disk_bus.advance(3)
    assert not worker.inbox
    assert not disk_bus.kept


def test_mail_that_waits_while_the_disk_fails_is_not_overtaken() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    chat.send("agent:w", {"n": 0}, delivery=DURABLE)
    disk_bus.settle()
    first = worker.next_message()
    for number in range(1, 20):
        chat.send("agent:w", {"n": number}, delivery=DURABLE)
    disk_bus.settle()
    first.ack()
    taken = ack_all(worker)
    disk_bus.fail()
    for _ in range(5):
        disk_bus.bus.advance(1)
        disk_bus.fail()
        sent = chat.send("agent:w", {"n": "later"})
        disk_bus.fail()
        assert refusal_of(sent)["rule"] == "mail.failed"
        assert not worker.inbox
    for _ in range(5):
        disk_bus.advance(1)
        taken += ack_all(worker)
    assert taken == list(range(1, 20))


def test_acks_while_the_disk_fails_are_written_later_though_the_peer_has_left() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    for number in range(3):
        chat.send("agent:w", {"n": number}, delivery=DURABLE)
    disk_bus.settle()
    worker.next_message().ack()
    disk_bus.fail()
    worker.next_message().fail("later", retry_seconds=1)
    worker.next_message().ack()
    worker.leave()
    disk_bus.fail()
    disk_bus.advance(30)
    assert [mail.payload for mail in disk_bus.kept] == [b'{"n":1}']
    worker = disk_bus.join("agent:w", extensions=ATTEMPTS)
    message = worker.next_message()
    assert (message.payload, message.delivery_attempt) == ({"n": 1}, 2)
    message.ack()
    disk_bus.settle()
    assert not disk_bus.kept


def test_mail_for_peers_that_stay_is_delivered_when_the_disk_works_again() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    for number in range(40):
        chat.send("agent:w", {"n": number}, delivery=DURABLE)
    disk_bus.settle()
    first = worker.next_message()
    disk_bus.bus.advance(1)
    disk_bus.fail()
    first.ack()
    disk_bus.advance(0.25)
    seen: list[object] = []
    for _ in range(20):
        seen += ack_all(worker)
        disk_bus.advance(2)
    assert seen == list(range(1, 40))
    assert not disk_bus.kept


def test_a_retry_that_the_disk_could_not_note_is_made_later() -> None:
    disk_bus = DiskBus()
    disk_bus.join("tg:1").send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker = disk_bus.bus.join("agent:w")
    for _ in range(6):
        disk_bus.fail()
        disk_bus.bus.advance(1)
    disk_bus.advance(3)
    assert ack_all(worker) == [1]


def test_keeping_goes_on_for_absent_peers_after_a_failure() -> None:
    disk_bus = DiskBus()
    chat = disk_bus.join("tg:1")
    chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.fail()
    sent = chat.send("agent:w", {"n": 2}, delivery=DURABLE)
    disk_bus.settle()
    assert sent.result.undelivered == "kept"
    assert ack_all(disk_bus.join("agent:w")) == [2]


def test_an_outcome_that_the_disk_could_not_write_is_known_to_whoever_sends_again() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    chat.send("agent:w", {"n": 1}, delivery=DURABLE, message_id="m")
    disk_bus.settle()
    worker.next_message().ack({"done": 1})
    disk_bus.fail()
    again = chat.send("agent:w", {"n": 1}, delivery=DURABLE, message_id="m")
    disk_bus.store.sync()
    disk_bus.bus.run(disk_bus.store.deliver)
    assert again.result.mail is not None
    assert again.result.mail.state == "acked"
    disk_bus.advance(5)
    disk_bus.crash()
    again = disk_bus.join("tg:1").send("agent:w", {"n": 1}, delivery=DURABLE, message_id="m")
    disk_bus.settle()
    assert again.result.mail is not None
    assert again.result.mail.state == "acked"


@pytest.mark.parametrize("end", ["dead", "expired"])
def test_the_end_of_a_dead_letter_is_known_though_the_disk_failed_meanwhile(end: str) -> None:
    disk_bus = DiskBus(MailSettings(max_attempts=1))
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    delivery: dict[str, object] = {"durable": True, "ttlSeconds": 10}
    chat.send("agent:w", {"n": 1}, delivery=delivery, message_id="m")
    disk_bus.settle()
    if end == "dead":
        worker.next_message().fail("later", retry_seconds=1)
    else:
        disk_bus.wall_clock.now += 11
        disk_bus.bus.advance(1)
        disk_bus.store.sync()
        disk_bus.bus.run(disk_bus.store.deliver)
    disk_bus.fail()
    disk_bus.advance(5)
    assert len(disk_bus.dead) == 1
    again = chat.send("agent:w", {"n": 1}, delivery=delivery, message_id="m")
    disk_bus.settle()
    assert again.result.mail is not None
    assert again.result.mail.state == end


def test_mail_of_an_earlier_run_is_found_though_the_disk_fails_at_first() -> None:
    disk_bus = DiskBus()
    chat = disk_bus.join("tg:1")
    disk_bus.join("agent:known").leave()
    for number in range(3):
        chat.send("agent:w", {"n": number}, delivery=DURABLE)
    disk_bus.settle()
    disk_bus.disk.crash(is_synced=False)
    disk_bus.start(is_failing=True)
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    later = chat.send("agent:w", {"n": 3}, delivery=DURABLE)
    seen: list[object] = []
    for _ in range(10):
        disk_bus.advance(1)
        seen += ack_all(worker)
    assert sorted(seen, key=str) == [0, 1, 2, 3]
    assert later.is_done
    assert not disk_bus.kept
    sent = chat.send("agent:known", {"n": 4})
    disk_bus.settle()
    assert sent.result.undelivered == "kept"


def test_who_was_known_is_known_after_a_crash_for_the_time_set() -> None:
    disk_bus = DiskBus(MailSettings(known_seconds=3_600))
    disk_bus.join("agent:w", subscribe=["app:*"]).leave()
    disk_bus.settle()
    for seconds, undelivered in ((0, "kept"), (3_000, "kept"), (700, "no route")):
        disk_bus.wall_clock.now += seconds
        disk_bus.crash()
        for to in ("agent:w", "app:x"):
            sent = disk_bus.join("tg:1").send(to, {"n": 1})
            disk_bus.settle()
            assert sent.result.undelivered == undelivered


def test_whoever_subscribes_and_unsubscribes_for_ever_does_not_fill_the_queue_for_the_disk() -> (
    None
):
    disk_bus = DiskBus(MailSettings(waiting_count=1_000))
    chat, restless = disk_bus.join("tg:1"), disk_bus.join("app:restless")
    for _ in range(20):
        for number in range(100):
            restless.subscribe(f"app:{number}")
            restless.unsubscribe(f"app:{number}")
    restless.subscribe("app:last")
    assert disk_bus.store.waiting < 1_000
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    assert sent.result.undelivered == "kept"
    disk_bus.crash()
    chat = disk_bus.join("tg:1")
    told = [chat.send(to, {"n": 1}) for to in ("app:99", "app:last")]
    disk_bus.settle()
    assert [sent.result.undelivered for sent in told] == ["no route", "kept"]
