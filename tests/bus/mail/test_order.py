"""What comes first is handed over first."""

from __future__ import annotations

import pytest

from busd.bus.mail_policy import MailSettings
from busd.testing import MemoryBus, ScriptedPeer
from tests.bus.mail.disk_bus import DURABLE, DiskBus, ack_all, texts


def drain(disk_bus: DiskBus, *workers: ScriptedPeer) -> list[object]:
    """Ack everything; return what was handed to the first of the peers."""
    seen: list[object] = []
    for _ in range(60):
        seen += ack_all(workers[0])
        for other in workers[1:]:
            ack_all(other)
        disk_bus.advance(0.5)
    return seen


def test_a_plain_message_goes_behind_mail_that_waits() -> None:
    disk_bus = DiskBus()
    chat = disk_bus.join("tg:1")
    for number in range(20):
        chat.send("agent:w", {"n": number}, delivery=DURABLE)
    disk_bus.settle()
    worker = disk_bus.join("agent:w")
    for number in range(20, 25):
        chat.send("agent:w", {"n": number})
    disk_bus.settle()
    assert drain(disk_bus, worker) == list(range(25))


@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_plain_message_right_after_a_peer_joins_goes_behind_mail(is_restarted: bool) -> None:
    disk_bus = DiskBus()
    disk_bus.join("tg:1").send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    if is_restarted:
        disk_bus.crash()
    chat = disk_bus.join("tg:1")
    worker = disk_bus.bus.connect("agent:w")

    def join_and_send() -> None:
        worker.initialize()
        chat.send("agent:w", {"n": 2})

    disk_bus.bus.run(join_and_send)
    disk_bus.settle()
    assert drain(disk_bus, worker) == [1, 2]


def test_a_peer_that_subscribes_and_sends_in_one_batch_does_not_overtake() -> None:
    disk_bus = DiskBus()
    disk_bus.join("tg:1").send("app:x", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker = disk_bus.join("agent:w")
    worker.batch(
        ("subscribe", {"address": "app:*"}), ("sendMessage", {"to": "app:x", "payload": {"n": 2}})
    )
    disk_bus.settle()
    assert drain(disk_bus, worker) == [1, 2]


def test_what_was_lost_comes_before_what_waits_behind_it() -> None:
    disk_bus = DiskBus()
    chat = disk_bus.join("tg:1")
    for number in range(30):
        chat.send("agent:w", {"n": number}, delivery=DURABLE)
    disk_bus.settle()
    for _ in range(3):
        worker = disk_bus.join("agent:w")
        assert texts(worker)[0] == 0
        worker.leave()
        disk_bus.settle()
    chat.send("agent:w", {"n": 30})
    disk_bus.settle()
    assert drain(disk_bus, disk_bus.join("agent:w")) == list(range(31))


def test_a_plain_message_after_a_peer_was_lost_goes_behind_its_mail() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    other = disk_bus.join("agent:w")
    chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker.leave()
    other.leave()
    new = disk_bus.bus.connect("agent:w")

    def join_and_send() -> None:
        new.initialize()
        chat.send("agent:w", {"n": 2})

    disk_bus.bus.run(join_and_send)
    disk_bus.settle()
    assert drain(disk_bus, new) == [1, 2]


def test_plain_messages_take_the_direct_way_again_when_the_mail_is_delivered() -> None:
    disk_bus = DiskBus()
    chat = disk_bus.join("tg:1")
    for number in range(20):
        chat.send("agent:w", {"n": number}, delivery=DURABLE)
    disk_bus.settle()
    worker = disk_bus.join("agent:w")
    drain(disk_bus, worker)
    kept = disk_bus.bus.mailboxes.counts["kept"]
    sent = chat.send("agent:w", {"n": 20})
    worker.next_message().ack()
    assert sent.is_done
    assert disk_bus.bus.mailboxes.counts["kept"] == kept


def test_messages_of_several_senders_are_delivered_in_the_order_kept() -> None:
    bus = MemoryBus(mail=MailSettings())
    chats = [bus.join(f"tg:{number}") for number in range(3)]
    for number in range(30):
        chats[number % 3].send("agent:w", {"n": number}, delivery=DURABLE)
    assert ack_all(bus.join("agent:w")) == list(range(30))


def test_a_mailbox_does_not_hold_up_others() -> None:
    disk_bus = DiskBus()
    chat, quick = disk_bus.join("tg:1"), disk_bus.join("agent:quick")
    slow = disk_bus.join("agent:slow")
    for number in range(50):
        chat.send("agent:slow", {"n": number}, delivery=DURABLE)
        chat.send("agent:quick", {"n": number}, delivery=DURABLE)
    disk_bus.settle()
    assert drain(disk_bus, quick) == list(range(50))
    assert len(slow.inbox) == 8
