"""A message that is sent again is not delivered again; its sender gets the first one's outcome."""

from __future__ import annotations

import time

import pytest

from busd.bus.mail_policy import MailSettings
from busd.errors import CallRefused
from busd.testing import MemoryBus
from busd.wire.connection import WireLimits
from tests.bus.mail.disk_bus import DURABLE, DiskBus, ack_all

KEY: dict[str, object] = {"durable": True, "idempotencyKey": "k"}


def test_a_message_that_is_sent_again_gets_the_first_outcome_and_is_not_delivered() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    first = chat.send("agent:w", {"n": 1}, delivery=KEY, message_id="first")
    disk_bus.settle()
    worker.next_message().ack({"done": 1}, message="well done")
    disk_bus.settle()
    for run in range(3):
        again = chat.send("agent:w", {"n": 1}, delivery=KEY, message_id=f"again {run}")
        disk_bus.settle()
        assert not worker.inbox
        assert again.result.acks == first.result.acks
        assert again.result.message_id == "first"
        assert again.result.mail is not None
        assert first.result.mail is not None
        assert again.result.mail.duplicate
        assert not first.result.mail.duplicate
        assert (again.result.mail.id, again.result.mail.state) == (first.result.mail.id, "acked")
        disk_bus.crash()
        chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")


def test_a_durable_message_with_an_id_is_known_by_it() -> None:
    bus = MemoryBus(mail=MailSettings())
    chat, worker = bus.join("tg:1"), bus.join("agent:w")
    for message_id in ("m", 0, 7):
        for _ in range(2):
            chat.send("agent:w", {"n": message_id}, delivery=DURABLE, message_id=message_id)
    assert ack_all(worker) == ["m", 0, 7]


def test_durable_messages_without_an_id_are_all_different() -> None:
    bus = MemoryBus(mail=MailSettings())
    chat, worker = bus.join("tg:1"), bus.join("agent:w")
    for _ in range(2):
        chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    assert ack_all(worker) == [1, 1]


def test_each_sender_has_keys_of_its_own() -> None:
    bus = MemoryBus(mail=MailSettings())
    worker = bus.join("agent:w")
    for name in ("tg:1", "tg:2"):
        bus.join(name).send("agent:w", {"n": name}, delivery=KEY)
    assert ack_all(worker) == ["tg:1", "tg:2"]


def test_a_key_is_not_an_id() -> None:
    bus = MemoryBus(mail=MailSettings())
    chat, worker = bus.join("tg:1"), bus.join("agent:w")
    chat.send("agent:w", {"n": 1}, delivery=KEY)
    chat.send("agent:w", {"n": 2}, delivery=DURABLE, message_id="k")
    assert ack_all(worker) == [1, 2]


def test_whoever_sends_again_while_the_first_is_in_flight_gets_its_outcome_too() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    first = chat.send("agent:w", {"n": 1}, delivery=KEY)
    disk_bus.settle()
    again = chat.send("agent:w", {"n": 1}, delivery=KEY)
    disk_bus.settle()
    assert len(worker.inbox) == 1
    assert not again.is_done
    worker.next_message().ack({"done": 1})
    assert again.result.acks == first.result.acks != []
    assert again.result.mail is not None
    assert again.result.mail.duplicate


def test_whoever_sends_again_while_the_first_is_written_gets_its_outcome_too() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    sent = [chat.send("agent:w", {"n": 1}, delivery=KEY) for _ in range(3)]
    disk_bus.settle()
    assert ack_all(worker) == [1]
    assert [each.result.mail.state for each in sent if each.result.mail] == ["acked"] * 3


def test_whoever_sends_again_just_before_the_first_is_acked_gets_its_outcome_too() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    chat.send("agent:w", {"n": 1}, delivery=KEY)
    disk_bus.settle()
    again = chat.send("agent:w", {"n": 1}, delivery=KEY)
    worker.next_message().ack({"done": 1})  # before the disk has looked for the key
    disk_bus.settle()
    assert again.result.mail is not None
    assert again.result.mail.state == "acked"
    assert [ack.payload for ack in again.result.acks] == [{"done": 1}]


def test_whoever_sends_again_what_still_waits_is_told_that_it_is_kept() -> None:
    disk_bus = DiskBus()
    chat = disk_bus.join("tg:1")
    for _ in range(3):
        sent = chat.send("agent:w", {"n": 1}, delivery=KEY)
        disk_bus.settle()
        assert sent.result.undelivered == "kept"
        disk_bus.crash()
        chat = disk_bus.join("tg:1")
    assert ack_all(disk_bus.join("agent:w")) == [1]


def test_a_refusal_is_the_outcome_of_both() -> None:
    disk_bus = DiskBus()
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    chat.send("agent:w", {"n": 1}, delivery=KEY)
    disk_bus.settle()
    worker.next_message().fail("never")
    disk_bus.settle()
    again = chat.send("agent:w", {"n": 1}, delivery=KEY)
    disk_bus.settle()
    assert not worker.inbox
    assert [ack.message for ack in again.result.acks] == ["never"]
    assert again.result.mail is not None
    assert again.result.mail.state == "refused"


@pytest.mark.parametrize(
    ("to", "payload"), [("agent:w", {"n": 2}), ("agent:other", {"n": 1}), ("agent:w", {})]
)
@pytest.mark.parametrize("is_acked", [True, False])
def test_a_key_that_was_used_for_another_message_is_refused_and_names_the_first(
    to: str, payload: object, is_acked: bool
) -> None:
    bus = MemoryBus(mail=MailSettings())
    chat = bus.join("tg:1")
    chat.send("agent:w", {"n": 1}, delivery=KEY, message_id="first")
    worker = bus.join("agent:w")
    if is_acked:
        ack_all(worker)
    with pytest.raises(CallRefused) as refused:
        chat.send(to, payload, delivery=KEY, message_id="second").check()
    assert refused.value.code == -32602
    assert refused.value.data == {"rule": "idempotency", "firstMessageId": "first"}
    assert len(ack_all(worker)) == 1 - is_acked


@pytest.mark.parametrize("key", ["", "x" * 257, "x" * (1024 * 1024), 7, ["k"]])
def test_a_key_that_is_none_is_refused(key: object) -> None:
    bus = MemoryBus(mail=MailSettings(), wire=WireLimits(max_frame_bytes=2 * 1024 * 1024))
    worker = bus.join("agent:w")
    sent = bus.join("tg:1").send("agent:w", {"n": 1}, delivery={"idempotencyKey": key})
    with pytest.raises(CallRefused) as refused:
        sent.check()
    assert refused.value.code == -32602
    assert not worker.inbox


@pytest.mark.parametrize("key", ["x", "x" * 256, "ü\n\0'\"; --", "*"])
def test_any_short_text_is_a_key(key: str) -> None:
    bus = MemoryBus(mail=MailSettings())
    chat, worker = bus.join("tg:1"), bus.join("agent:w")
    for _ in range(2):
        chat.send("agent:w", {"n": 1}, delivery={"idempotencyKey": key})
    assert ack_all(worker) == [1]


def test_a_key_is_forgotten_after_its_time() -> None:
    disk_bus = DiskBus(MailSettings(key_seconds=100))
    chat, worker = disk_bus.join("tg:1"), disk_bus.join("agent:w")
    delivered = []
    for seconds in (0, 99, 2):
        disk_bus.advance(seconds)
        chat.send("agent:w", {"n": 1}, delivery=KEY)
        disk_bus.settle()
        delivered.append(len(ack_all(worker)))
    assert delivered == [1, 0, 1]


@pytest.mark.parametrize("seconds", [86_400.0 * 3, -86_400.0])
def test_a_message_that_waits_is_known_however_late_it_is_sent_again(seconds: float) -> None:
    disk_bus = DiskBus()
    chat = disk_bus.join("tg:1")
    chat.send("agent:w", {"n": 1}, delivery=KEY)
    disk_bus.settle()
    disk_bus.wall_clock.now += seconds
    disk_bus.advance(61)  # keys are forgotten once a minute
    again = chat.send("agent:w", {"n": 1}, delivery=KEY)
    disk_bus.settle()
    assert again.result.mail is not None
    assert again.result.mail.duplicate
    assert ack_all(disk_bus.join("agent:w")) == [1]


def test_a_key_without_durable_has_no_route_if_there_is_nobody() -> None:
    bus = MemoryBus(mail=MailSettings())
    sent = bus.join("tg:1").send("agent:w", {"n": 1}, delivery={"idempotencyKey": "k"})
    assert sent.result.undelivered == "no route"


def test_acks_that_are_too_large_to_be_remembered_are_cut_short_for_the_second() -> None:
    bus = MemoryBus(mail=MailSettings())
    chat, worker = bus.join("tg:1"), bus.join("agent:w")
    first = chat.send("agent:w", {"n": 1}, delivery=KEY)
    worker.next_message().ack({"big": "x" * 100_000})
    assert len(first.result.acks[0].payload["big"]) == 100_000
    again = chat.send("agent:w", {"n": 1}, delivery=KEY).result
    assert again.acks[0].success
    assert again.acks[0].payload == {}
    assert "left out" in again.acks[0].message


def test_a_message_that_is_sent_again_and_again_costs_the_same_each_time() -> None:
    times: list[float] = []
    for count in (1_000, 12_000):
        bus = MemoryBus(mail=MailSettings())
        bus.join("agent:w")  # it does not answer
        chat = bus.join("tg:1")
        begun = time.perf_counter()
        sent = [chat.send("agent:w", {"n": 1}, delivery=KEY) for _ in range(count)]
        bus.advance(100)
        times.append((time.perf_counter() - begun) / count)
        assert all(each.is_done for each in sent)
    assert times[1] < 5 * times[0]  # 20 if all of them are looked at each time


def test_a_message_that_is_sent_again_over_another_connection_is_not_delivered_again() -> None:
    bus = MemoryBus(mail=MailSettings())
    worker, chat = bus.join("agent:w"), bus.join("tg:1")
    chat.send("agent:w", {"n": 1}, delivery=KEY)
    assert ack_all(worker) == [1]
    chat.leave()
    again = bus.join("tg:1").send("agent:w", {"n": 1}, delivery=KEY)
    assert not worker.inbox
    assert again.result.mail is not None
    assert (again.result.mail.state, again.result.mail.duplicate) == ("acked", True)
