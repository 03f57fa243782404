"""Every send is answered once, whatever happens meanwhile, and charged until then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from busd.bus.delivery import DeliveryLimits
from busd.bus.mail_policy import MailSettings
from busd.bus.peer import RemotePeer
from busd.errors import CallRefused
from busd.testing import MemoryBus, ScriptedPeer
from tests.bus.mail.disk_bus import ATTEMPTS, DURABLE, DiskBus, ack_all


@pytest.fixture
def disk_bus() -> Iterator[DiskBus]:
    """Return a bus; when the test is over, nobody may be charged for anything."""
    disk_bus = DiskBus(MailSettings(keep=["app:*"]))
    yield disk_bus
    disk_bus.advance(130)
    assert waiting(disk_bus.bus) == {}


def waiting(bus: MemoryBus) -> dict[str, int]:
    """Return what the peers of a bus, and those that left, are still charged for."""
    accounts = [bus.core.accounts.unknown, *bus.core.accounts.by_name.values()]
    charged = {account.name: account.unanswered for account in accounts if account.unanswered}
    for peer in bus.core.remote_peers:
        allowance = peer.allowance
        if allowance.waiting or allowance.owed or allowance.unasked:
            charged[peer.name] = allowance.waiting
    nobody, boxes = bus.mailboxes.nobody, bus.mailboxes.boxes.values()
    in_flight = sum(len(box.in_flight) for box in boxes)  # each to one peer
    if nobody.allowance.waiting != in_flight or nobody.allowance.unasked != in_flight:
        charged["mailboxes"] = nobody.allowance.waiting
    return charged


def joined(disk_bus: DiskBus) -> tuple[ScriptedPeer, ScriptedPeer]:
    return disk_bus.join("tg:1"), disk_bus.join("agent:w")


def test_a_sender_that_waits_is_told_what_its_addressee_answered(disk_bus: DiskBus) -> None:
    chat, worker = joined(disk_bus)
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE, message_id="m")
    disk_bus.settle()
    assert not sent.is_done
    worker.next_message().ack({"x": 1}, message="done")
    [ack] = sent.result.acks
    assert (ack.success, ack.message, ack.payload, ack.client_id) == (
        True,
        "done",
        {"x": 1},
        "agent:w",
    )
    assert sent.result.undelivered is None
    assert waiting(disk_bus.bus) == {}


@pytest.mark.parametrize("answer", ["ack", "refuse", "retry", "leave", "silence", "absent"])
def test_a_notification_is_never_answered_and_in_the_end_nothing_is_charged(
    disk_bus: DiskBus, answer: str
) -> None:
    chat = disk_bus.join("tg:1")
    worker = disk_bus.join("agent:w" if answer != "absent" else "agent:other")
    for number in range(5):
        chat.notify("agent:w", {"n": number}, delivery=DURABLE)
    disk_bus.settle()
    while worker.inbox:
        message = worker.next_message()
        if answer == "ack":
            message.ack()
        elif answer == "refuse":
            message.fail("never")
        elif answer == "retry":
            message.fail("later", retry_seconds=10)
    if answer == "leave":
        worker.leave()
    disk_bus.advance(61)
    assert waiting(disk_bus.bus) == {}
    assert len(chat.frames) == 1  # the answer to its `initialize`
    assert len(disk_bus.dead) == 5 * (answer == "refuse")
    assert len(disk_bus.kept) == 5 * (answer in ("retry", "leave", "silence", "absent"))


def test_a_notification_that_cannot_be_kept_is_charged_to_nobody(disk_bus: DiskBus) -> None:
    chat = disk_bus.join("tg:1")
    chat.notify("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.fail()
    assert waiting(disk_bus.bus) == {}
    assert len(chat.frames) == 1


def test_a_batch_is_answered_when_all_of_it_is(disk_bus: DiskBus) -> None:
    chat, worker = joined(disk_bus)
    payload = {"n": 1}
    sent = chat.batch(
        ("sendMessage", {"to": "agent:w", "payload": payload, "delivery": DURABLE}),
        ("sendMessage", {"to": "app:x", "payload": payload}),
        ("sendMessage", {"to": "agent:nobody", "payload": payload}),
        ("sendMessage", {"to": "agent:w", "payload": payload, "delivery": {"ttlSeconds": -1}}),
        ("ping", {}),
    )
    disk_bus.settle()
    assert not any(each.is_done for each in sent)
    worker.next_message().ack()
    assert all(each.is_done for each in sent)
    assert [each.error is not None for each in sent] == [False, False, False, True, False]
    assert [each.result.get("undelivered") for each in sent[:3]] == [None, "kept", "no route"]


def test_a_batch_has_room_for_the_answers_of_all_its_messages() -> None:
    bus = MemoryBus(mail=MailSettings())
    chat, worker = bus.join("tg:1"), bus.join("agent:w")
    params = {"to": "agent:w", "payload": {"n": 1}, "delivery": DURABLE}
    sent = chat.batch(*[("sendMessage", params)] * 6)
    while worker.inbox:
        worker.next_message().ack({"x": "x" * 300_000})
    assert all(each.is_done for each in sent)
    assert all(each.error is None for each in sent)
    assert max(map(len, chat.frames)) <= 1024 * 1024


def test_a_sender_that_half_closes_still_gets_its_answer(disk_bus: DiskBus) -> None:
    chat, worker = joined(disk_bus)
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    chat.half_close()
    disk_bus.settle()
    assert chat.is_connected
    assert not sent.is_done
    worker.next_message().ack({"x": 1})
    assert sent.result.acks[0].payload == {"x": 1}
    disk_bus.settle()
    assert chat.has_end


def test_a_sender_that_half_closes_while_its_message_is_written_is_told_that_it_is_kept(
    disk_bus: DiskBus,
) -> None:
    chat = disk_bus.join("tg:1")
    sent = chat.send("app:x", {"n": 1})
    chat.half_close()
    assert chat.is_connected
    disk_bus.settle()
    assert sent.result.undelivered == "kept"
    assert chat.has_end


@pytest.mark.parametrize("when", ["writing", "in flight", "postponed"])
def test_the_message_of_a_sender_that_left_is_delivered(disk_bus: DiskBus, when: str) -> None:
    chat, worker = joined(disk_bus)
    chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    if when == "writing":
        chat.leave()
    disk_bus.settle()
    if when == "postponed":
        worker.next_message().fail("later", retry_seconds=5)
    chat.leave()
    disk_bus.advance(6)
    assert ack_all(worker) == [1]
    disk_bus.settle()
    assert waiting(disk_bus.bus) == {}
    assert (disk_bus.kept, disk_bus.dead) == ([], [])


def test_a_refusal_that_a_sender_that_left_cannot_be_told_is_a_dead_letter(
    disk_bus: DiskBus,
) -> None:
    chat, worker = joined(disk_bus)
    chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    chat.leave()
    worker.next_message().fail("never")
    disk_bus.settle()
    assert [letter.mail.reason for letter in disk_bus.dead] == ["never"]


def test_a_bus_that_stops_answers_everybody_and_refuses_what_is_new() -> None:
    disk_bus = DiskBus(MailSettings(keep=["app:*"]))
    chat, worker = joined(disk_bus)
    in_flight = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    assert worker.inbox
    postponed = chat.send("agent:w", {"n": 2}, delivery=DURABLE)
    disk_bus.settle()
    worker.inbox[1].fail("later", retry_seconds=5)
    written = chat.send("agent:w", {"n": 3}, delivery=DURABLE)
    absent = chat.send("app:x", {"n": 4})
    disk_bus.bus.core.is_stopping = True
    refused = [chat.send("agent:w", {"n": 5}, delivery=DURABLE), chat.send("app:x", {"n": 6})]
    for each in refused:
        with pytest.raises(CallRefused) as error:
            each.check()
        assert error.value.code == -32004
        assert error.value.data["retrySeconds"] > 0  # type: ignore[index]
    disk_bus.store.sync()
    disk_bus.bus.stop()
    disk_bus.bus.run(disk_bus.store.deliver)
    sent = (in_flight, postponed, written, absent)
    assert [each.is_done for each in (in_flight, postponed)] == [True, True]
    disk_bus.crash(is_synced=True)
    kept = {mail.payload for mail in disk_bus.kept}
    assert kept == {b'{"n":%d}' % number for number in (1, 2, 3, 4)}
    told = [each.result.undelivered for each in sent if each.is_done]
    assert set(told) <= {"kept", "retrying"}


def test_a_bus_that_stops_finishes_what_is_in_flight() -> None:
    disk_bus = DiskBus()
    chat, worker = joined(disk_bus)
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    disk_bus.bus.core.is_stopping = True
    worker.next_message().ack({"x": 1})
    assert sent.result.acks[0].payload == {"x": 1}
    disk_bus.settle()
    assert not disk_bus.kept


def test_what_fails_because_the_bus_stops_is_delivered_again_after_the_restart() -> None:
    disk_bus = DiskBus()
    chat, worker = joined(disk_bus)
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    disk_bus.bus.core.is_stopping = True
    answer = worker.send("tg:1", {"n": 2})
    assert answer.error is not None
    worker.next_message().error(-32603, answer.error.message)  # its handler has failed
    disk_bus.settle()
    assert sent.result.undelivered == "retrying"
    disk_bus.crash()
    message = disk_bus.join("agent:w", extensions=ATTEMPTS).next_message()
    assert message.delivery_attempt == 2
    assert not disk_bus.dead


def test_a_refusal_while_the_bus_stops_is_final() -> None:
    disk_bus = DiskBus()
    chat, worker = joined(disk_bus)
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    disk_bus.bus.core.is_stopping = True
    worker.next_message().fail("never")
    disk_bus.settle()
    assert sent.result.acks[0].message == "never"
    assert not disk_bus.kept


def test_a_sender_hears_that_a_silent_addressee_was_handed_its_message() -> None:
    disk_bus = DiskBus(limits=DeliveryLimits(ack_seconds=5))
    chat, _ = joined(disk_bus)
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    disk_bus.advance(6)
    assert sent.result.undelivered == "kept"
    assert not sent.result.acks
    assert sent.result.mail is not None
    assert (sent.result.mail.state, sent.result.mail.attempts) == ("delivered", 1)


def test_the_silence_of_an_observer_does_not_hide_that_the_addressee_has_acked() -> None:
    disk_bus = DiskBus(limits=DeliveryLimits(ack_seconds=5))
    chat, worker = joined(disk_bus)
    disk_bus.join("monitor:1", subscribe=["*"])
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker.next_message().ack({"x": 1})
    disk_bus.advance(6)
    assert sent.result.mail is not None
    assert sent.result.mail.state == "acked"
    assert {ack.client_id: ack.outcome for ack in sent.result.acks} == {
        "agent:w": "",
        "monitor:1": "timeout",
    }


def test_quotas_count_what_waits_for_the_disk() -> None:
    disk_bus = DiskBus()
    chat = disk_bus.join("tg:1")
    [peer] = disk_bus.bus.core.remote_peers
    assert isinstance(peer, RemotePeer)
    for number in range(40):
        chat.send("agent:w", {"n": number}, delivery=DURABLE)
    assert (peer.allowance.waiting, peer.allowance.owed) == (40, 40)
    disk_bus.settle()
    assert (peer.allowance.waiting, peer.allowance.owed) == (0, 0)
