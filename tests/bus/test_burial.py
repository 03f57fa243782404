"""Mail for an address whose peers a plugin starts: who waits, who is told, and what is given up."""

from __future__ import annotations

import pytest

from busd.bus.mail import DeadLetter, Mail
from busd.bus.mail_policy import MailSettings
from busd.bus.mail_store import ListDead
from busd.testing import MemoryBus, ScriptedPeer

AGENT = "agent:w"
DURABLE: dict[str, object] = {"durable": True}
WHY = "the agent could not be started"


class Watcher:
    def __init__(self) -> None:
        self.mail: list[str] = []
        self.dead: list[tuple[str, str]] = []

    def on_mail(self, mail: Mail) -> None:
        self.mail.append(str(mail.message_id))

    def on_dead_letter(self, mail: Mail, reason: str) -> None:
        assert mail.payload.startswith(b'{"n":')
        self.dead.append((str(mail.message_id), reason))


@pytest.fixture
def bus() -> MemoryBus:
    bus = MemoryBus(mail=MailSettings())
    bus.mailboxes.policy.claims_by_plugin["starter"] = lambda address: address == AGENT
    return bus


@pytest.fixture
def watcher(bus: MemoryBus) -> Watcher:
    watcher = Watcher()
    bus.mailboxes.watchers.append(watcher)
    return watcher


@pytest.fixture
def chat(bus: MemoryBus) -> ScriptedPeer:
    return bus.join("tg:1")


def bury(bus: MemoryBus, reason: str = WHY) -> list[int]:
    counts: list[int] = []
    bus.run(lambda: bus.mailboxes.bury_all(AGENT, reason, counts.append))
    return counts


def dead_letters(bus: MemoryBus) -> list[DeadLetter]:
    found: list[DeadLetter] = []

    def add(outcome: object) -> None:
        assert isinstance(outcome, list)
        found.extend(outcome)

    bus.run(lambda: bus.store.submit(ListDead(limit=1_000), add))
    return found


def test_a_sender_waits_for_a_peer_that_a_plugin_starts(
    bus: MemoryBus, chat: ScriptedPeer, watcher: Watcher
) -> None:
    sent = chat.send(AGENT, {"n": 1}, message_id="m1")
    assert watcher.mail == ["m1"]
    assert not sent.is_done
    bus.join(AGENT).next_message().ack({"by": "worker"})
    assert sent.result.acks[0].payload == {"by": "worker"}


def test_a_sender_whose_time_is_up_learns_that_its_message_is_kept(
    bus: MemoryBus, chat: ScriptedPeer
) -> None:
    sent = chat.send(AGENT, {"n": 1})
    bus.advance(61)
    assert (sent.result.acks, sent.result.undelivered) == ([], "kept")


def test_all_mail_of_an_address_is_buried_and_senders_that_wait_get_the_reason(
    bus: MemoryBus, chat: ScriptedPeer, watcher: Watcher
) -> None:
    told_before = [chat.send(AGENT, {"n": number}, message_id=f"a{number}") for number in range(2)]
    bus.advance(61)
    waiting = [chat.send(AGENT, {"n": number}, delivery=DURABLE) for number in range(250)]
    assert bury(bus) == [252]
    assert [each.result.undelivered for each in told_before] == ["kept", "kept"]
    for each in waiting:
        (ack,) = each.result.acks
        assert (ack.success, ack.message, ack.client_id) == (False, WHY, AGENT)
        assert each.result.mail is not None
        assert each.result.mail.state == "dead"
    assert watcher.dead == [("a0", WHY), ("a1", WHY)]  # nobody else can tell their sender
    assert len(dead_letters(bus)) == 252
    assert not bus.mailboxes.has_mail(AGENT)
    assert not bus.join(AGENT).inbox


def test_a_message_that_was_buried_has_its_outcome_when_it_is_sent_again(
    bus: MemoryBus, chat: ScriptedPeer
) -> None:
    chat.send(AGENT, {"n": 1}, message_id="m1", delivery=DURABLE)
    bury(bus)
    again = chat.send(AGENT, {"n": 1}, message_id="m1", delivery=DURABLE)
    assert again.result.acks[0].message == WHY


def test_mail_that_comes_after_the_beginning_of_a_burial_is_delivered(
    bus: MemoryBus, chat: ScriptedPeer
) -> None:
    chat.send(AGENT, {"n": 1})
    worker = bus.join(AGENT)
    first = worker.next_message()
    counts = bury(bus)
    bus.advance(0.25)
    chat.send(AGENT, {"n": 2})
    assert (counts, list(worker.inbox)) == ([], [])  # it may still be answered
    worker.leave()
    assert counts == [1]
    assert first.payload == {"n": 1}
    assert [each.payload for each in bus.join(AGENT).inbox] == [{"n": 2}]


def test_what_a_peer_answers_is_not_buried(bus: MemoryBus, chat: ScriptedPeer) -> None:
    sent = chat.send(AGENT, {"n": 1})
    worker = bus.join(AGENT)
    counts = bury(bus)
    worker.next_message().ack()
    assert sent.result.acks[0].success
    assert (counts, dead_letters(bus)) == ([0], [])


def test_a_dead_letter_that_is_revived_is_delivered(
    bus: MemoryBus, chat: ScriptedPeer, watcher: Watcher
) -> None:
    chat.send(AGENT, {"n": 1}, message_id="m1")
    bury(bus)
    (letter,) = dead_letters(bus)
    bus.run(lambda: bus.mailboxes.revive(letter, lambda _: None))
    assert watcher.mail == ["m1", "m1"]  # whoever starts the peer starts it again
    chat.send(AGENT, {"n": 2})
    assert [each.payload for each in bus.join(AGENT).inbox] == [{"n": 1}, {"n": 2}]


def test_a_message_that_peers_die_over_is_given_up_and_the_next_one_is_not(
    bus: MemoryBus, chat: ScriptedPeer, watcher: Watcher
) -> None:
    sent = [chat.send(AGENT, {"n": number}, message_id=f"m{number}") for number in range(3)]
    first = bus.join(AGENT)
    assert len(first.inbox) == 3
    first.leave()
    second = bus.join(AGENT, extensions={"deliveryAttempt": True})
    (again,) = second.inbox  # alone
    assert (again.payload, again.delivery_attempt) == ({"n": 0}, 2)
    second.leave()
    assert sent[0].result.acks[0].message == "peer left before it answered"
    third = bus.join(AGENT)
    third.next_message().ack()
    third.next_message().ack()
    assert [each.result.acks[0].success for each in sent[1:]] == [True, True]
    assert [each.mail.message_id for each in dead_letters(bus)] == ["m0"]
    assert watcher.dead == []


def test_a_message_is_not_handed_over_again_while_its_peer_may_still_answer(
    bus: MemoryBus, chat: ScriptedPeer
) -> None:
    sent = chat.send(AGENT, {"n": 1})
    worker = bus.join(AGENT)
    message = worker.next_message()
    bus.advance(600)
    assert sent.result.undelivered == "kept"
    assert not worker.inbox
    message.ack()
    assert bus.store.totals.count == 0
    assert dead_letters(bus) == []


def test_whoever_starts_a_peer_learns_of_mail_that_it_refuses_or_that_expires(
    bus: MemoryBus, chat: ScriptedPeer, watcher: Watcher
) -> None:
    chat.send(AGENT, {"n": 1}, message_id="m1")
    chat.send(AGENT, {"n": 2}, message_id="m2", delivery={"durable": True, "ttlSeconds": 70})
    bus.advance(61)
    worker = bus.join(AGENT)
    worker.next_message().fail("not today")
    worker.leave()
    bus.advance(10)
    assert watcher.dead == [("m1", "not today"), ("m2", "not delivered within its time")]


def test_a_message_lost_with_a_peer_that_a_plugin_starts_may_be_sent_again(
    bus: MemoryBus, chat: ScriptedPeer
) -> None:
    worker = bus.join(AGENT)
    sent = chat.send(AGENT, {"n": 1})
    worker.leave()
    assert (sent.result.acks[0].outcome, sent.result.acks[0].should_retry) == ("lost", True)
