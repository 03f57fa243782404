"""Messages that are kept and messages that are not stay in one order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from busd.bus.mail_policy import MailSettings
from busd.mail.memory import MemoryMailStore
from busd.testing import FakeClock, MemoryBus, ScriptedPeer

DURABLE: dict[str, object] = {"durable": True}


class SlowStore(MemoryMailStore):
    """Delivers outcomes when it is told to."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        super().__init__(self.due.append, MailSettings())

    def write(self, bus: MemoryBus) -> None:
        while self.due:
            bus.run(self.due.pop(0))


def numbers(peer: ScriptedPeer) -> list[object]:
    """Ack all that a peer gets, and return what it says."""
    found: list[object] = []
    while peer.inbox:
        message = peer.next_message()
        found.append(message.payload["n"])
        message.ack()
    return found


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


@pytest.fixture
def bus(store: SlowStore) -> MemoryBus:
    bus = MemoryBus(mail=MailSettings(), store=store)
    store.write(bus)
    return bus


def test_a_message_does_not_overtake_one_that_is_being_written(
    bus: MemoryBus, store: SlowStore
) -> None:
    chat, worker = bus.join("tg:1"), bus.join("agent:w")
    chat.send("agent:w", {"n": 1})
    chat.send("agent:w", {"n": 2}, delivery=DURABLE)
    chat.send("agent:w", {"n": 3})
    assert numbers(worker) == [1]
    store.write(bus)
    found = numbers(worker)
    store.write(bus)
    assert found + numbers(worker) == [2, 3]
    bus.advance(2)
    store.write(bus)
    chat.send("agent:w", {"n": 4})
    assert numbers(worker) == [4]  # directly again


def test_a_message_to_a_held_address_waits_whatever_else_is_answered(
    bus: MemoryBus, store: SlowStore
) -> None:
    chat, worker = bus.join("tg:1"), bus.join("agent:w")
    chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    store.write(bus)
    bus.mailboxes.hold("agent:w")
    assert numbers(worker) == [1]
    store.write(bus)
    chat.send("agent:w", {"n": 2})
    chat.send("agent:w", {"n": 3})
    assert numbers(worker) == []
    store.write(bus)
    bus.run(lambda: bus.mailboxes.let_go("agent:w"))
    store.write(bus)
    assert numbers(worker) == [2, 3]


def test_a_message_does_not_overtake_what_an_earlier_run_kept() -> None:
    clock, store = FakeClock(), SlowStore()
    first = MemoryBus(mail=MailSettings(), store=store, clock=clock)
    first.join("agent:w").leave()
    first.join("tg:1").send("agent:w", {"n": 1})
    store.write(first)
    second = MemoryBus(mail=MailSettings(), store=store, clock=clock)
    store.write(second)
    second.core.wake = lambda: None  # the bus is busy: what it defers is not its turn yet
    chat, worker = second.join("tg:1"), second.join("agent:w")
    chat.send("agent:w", {"n": 2})
    assert numbers(worker) == []
    second.run(second.core.finish_work)
    store.write(second)
    assert numbers(worker) == [1, 2]
