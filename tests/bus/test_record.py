"""What the bus records of its deliveries."""

from __future__ import annotations

from msgspec import Raw

from busd.bus.record import MAX_ERROR_CHARACTERS, Record
from busd.testing import MemoryBus


class Recorded:
    """A recorder that keeps everything in memory."""

    keeps_payloads = True

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.add = self.records.append

    def keep(self, payload: Raw) -> str:
        return str(payload, "utf-8")


def recorded_bus() -> tuple[MemoryBus, list[Record]]:
    bus, recorder = MemoryBus(), Recorded()
    bus.core.recorder = recorder
    return bus, recorder.records


def test_an_answered_message_is_one_record() -> None:
    bus, records = recorded_bus()
    alice, bob = bus.join("agent:alice"), bus.join("agent:bob")
    alice.send("agent:bob", {"n": 1}, message_id="m")
    call = bus.core.last_call_id
    [open_record] = bus.core.open_since(0)
    assert (open_record.status, open_record.ended) == ("in flight", None)
    assert list(bus.core.open_since(call)) == []
    assert records == []
    bus.clock.now += 0.5
    bob.next_message().ack()
    [record] = records
    assert (record.call, record.message_id, record.status) == (call, "m", "ok")
    assert (record.sender, record.to, record.peer) == ("agent:alice", "agent:bob", "agent:bob")
    assert (record.started, record.ended) == (bus.clock.now - 0.5, bus.clock.now)
    assert (record.is_first, record.is_last, record.payload) == (True, True, '{"n":1}')


def test_deliveries_in_flight_can_be_limited_to_those_that_started_before_a_time() -> None:
    bus, _ = recorded_bus()
    alice = bus.join("agent:alice")
    for name in ("agent:bob", "agent:carol"):
        bus.join(name)
    for message_id in ("early", "late"):
        for name in ("agent:bob", "agent:carol"):
            alice.send(name, {}, message_id=message_id)
        bus.clock.now += 1.0
    early = list(bus.core.open_since(0, before=bus.clock.now - 1.5))
    assert [record.message_id for record in early] == ["early", "early"]
    late = list(bus.core.open_since(max(record.call for record in early)))
    assert [record.message_id for record in late] == ["late", "late"]


def test_of_a_fan_out_one_record_has_the_payload_and_one_the_end() -> None:
    bus, records = recorded_bus()
    alice, *others = (bus.join(f"agent:{name}") for name in ("alice", "bob", "carol"))
    for peer in others:
        peer.subscribe("all")
    alice.send("all", {"n": 1})
    for peer in reversed(others):
        peer.next_message().ack()
    assert [record.peer for record in records] == ["agent:carol", "agent:bob"]
    assert [record.is_last for record in records] == [False, True]
    assert len({(record.call, record.started) for record in records}) == 1
    [first] = [record for record in records if record.is_first]
    assert [record.payload for record in records if record is not first] == [""]
    assert first.payload == '{"n":1}'


def test_a_message_to_nobody_has_no_peer() -> None:
    bus, records = recorded_bus()
    bus.join("agent:alice").send("agent:nobody", {})
    [record] = records
    assert (record.status, record.peer, record.ended) == ("no route", "", record.started)


def test_of_a_very_long_error_the_beginning_is_recorded() -> None:
    bus, records = recorded_bus()
    alice, bob = bus.join("agent:alice"), bus.join("agent:bob")
    alice.send("agent:bob", {})
    bob.next_message().fail("x" * 5000)
    [record] = records
    assert (record.status, record.error) == ("failed", "x" * MAX_ERROR_CHARACTERS)
