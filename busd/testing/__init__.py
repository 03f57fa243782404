"""The test kit: a whole bus in memory, scripted peers, and a clock that the test controls.

The bus is the real one; only sockets and time are simulated, so a test runs in microseconds, never
sleeps and is deterministic:

    from busd.testing import MemoryBus

    bus = MemoryBus()
    chat = bus.join("tg:1")
    worker = bus.join("agent:w", subscribe=["tg:*"])

    sent = chat.send("agent:w", {"type": "hello"})
    call = worker.next_message()
    assert call.payload == {"type": "hello"}
    call.ack({"ok": True})  # or call.fail("no"), call.error(-1, "no"), call.answer_raw(b"17")
    assert sent.result.acks[0].payload == {"ok": True}

    sent = chat.send("agent:w", {"type": "hello"})
    bus.advance(61)  # nobody answers, and a minute passes
    assert sent.result.acks[0].outcome == "timeout"

A peer can also misbehave: `stop_reading`, `half_close`, `leave`, `feed` any bytes, answer late,
twice or never; `bus.connect()` returns one that has not initialized.
"""

from busd.testing.answers import AckSeen, Answer, Handed, ReceiptSeen
from busd.testing.bus import FakeClock, MemoryBus
from busd.testing.peer import ScriptedPeer
from busd.testing.transport import MemoryTransport

__all__ = [
    "AckSeen",
    "Answer",
    "FakeClock",
    "Handed",
    "MemoryBus",
    "MemoryTransport",
    "ReceiptSeen",
    "ScriptedPeer",
]
