"""The test kit itself: it does what a socket and a clock would do, and its examples are true."""

from __future__ import annotations

import doctest
import textwrap

import pytest
from msgspec import Raw
from structlog.testing import capture_logs

import busd.testing
import busd.testing.bus
from busd.errors import CallRefused, NoAnswer
from busd.testing import MemoryBus
from busd.wire.connection import WireLimits


def test_the_example_of_the_kit_is_true() -> None:
    doc = busd.testing.__doc__ or ""
    example = "\n".join(line for line in doc.splitlines() if line.startswith("    "))
    exec(compile(textwrap.dedent(example), "example", "exec"), {})


def test_the_example_of_the_bus_is_true() -> None:
    with capture_logs():  # what is logged would stand in the output
        failed, tried = doctest.testmod(busd.testing.bus)
    assert (failed, tried) == (0, 5)


@pytest.mark.parametrize("web_socket", [False, True])
@pytest.mark.parametrize("chunk", [None, 1, 7])
def test_a_message_goes_there_and_its_ack_comes_back(web_socket: bool, chunk: int | None) -> None:
    bus = MemoryBus()
    chat = bus.join("tg:1", web_socket=web_socket, chunk=chunk)
    worker = bus.join("agent:w", subscribe=["tg:*"], web_socket=web_socket, chunk=chunk)
    sent = chat.send("agent:w", {"type": "hello"}, message_id="m1")
    call = worker.next_message()
    assert (call.sender, call.to, call.message_id) == ("tg:1", "agent:w", "m1")
    assert call.payload == {"type": "hello"}
    assert not sent.is_done
    call.ack({"ok": True}, message="done")
    ack = sent.result.acks[0]
    assert (ack.success, ack.message, ack.payload, ack.client_id) == (
        True,
        "done",
        {"ok": True},
        "agent:w",
    )
    assert sent.result.message_id == "m1"


def test_a_message_can_be_declined_or_answered_with_an_error_or_with_anything() -> None:
    bus = MemoryBus()
    chat, worker = bus.join("a"), bus.join("b")
    sent = [chat.send("b", {}) for _ in range(4)]
    worker.next_message().fail("later", retry_seconds=2)
    worker.next_message().error(-1, "no", [1])
    worker.next_message().answer_raw(b'{ "payload" : {"n": 1.0} }')
    worker.next_message().answer_raw(b"17")
    acks = [answer.result.acks[0] for answer in sent]
    assert [ack.success for ack in acks] == [False, False, True, False]
    assert (acks[0].should_retry, acks[0].retry_seconds) == (True, 2)
    assert acks[1].payload == {"error": {"code": -1, "message": "no", "data": [1]}}
    assert b'"payload":{"n": 1.0}' in sent[2].raw


def test_a_raw_payload_goes_out_byte_for_byte() -> None:
    bus = MemoryBus()
    bus.join("a").notify("b", Raw(b"{}"))
    chat, worker = bus.join("a"), bus.join("b")
    chat.notify("b", Raw(b'{ "n" : 1e2 }'))
    assert worker.next_message().raw_payload == b'{ "n" : 1e2 }'


def test_an_answer_that_has_not_come_says_so() -> None:
    bus = MemoryBus()
    bus.join("b")
    sent = bus.join("a").send("b", {})
    with pytest.raises(NoAnswer, match="sendMessage has not been answered yet"):
        _ = sent.result
    assert sent.error is None


def test_a_refused_call_raises_what_the_bus_said() -> None:
    peer = MemoryBus().join("a")
    with pytest.raises(CallRefused) as refused:
        peer.unsubscribe("never")
    assert refused.value.code == -32003
    assert refused.value.data == {"rule": "subscription", "address": "never"}
    with pytest.raises(CallRefused):
        peer.subscribe("a b")


def test_a_peer_that_may_not_join_raises_what_the_bus_said() -> None:
    with pytest.raises(CallRefused, match="malformed address"):
        MemoryBus().join("no spaces")


def test_a_message_that_is_not_there_is_named_in_the_failure() -> None:
    peer = MemoryBus().join("agent:lonely")
    with pytest.raises(AssertionError, match="agent:lonely was handed no message"):
        peer.next_message()


def test_time_passes_only_when_told_and_sweeps_as_it_passes() -> None:
    bus = MemoryBus()
    stranger = bus.connect()
    start = bus.clock()
    bus.advance(9.99)
    assert stranger.is_connected
    bus.advance(0.01)
    assert bus.clock() == start + 10
    assert not stranger.is_connected
    assert not bus.connections.open


def test_a_quiet_web_socket_answers_pings_and_one_that_does_not_read_is_dropped() -> None:
    bus = MemoryBus()
    awake, asleep = bus.join("a", web_socket=True), bus.join("b", web_socket=True)
    asleep.stop_reading()
    bus.advance(150)
    assert awake.is_connected
    assert not asleep.is_connected


def test_what_a_peer_does_not_read_waits_and_is_counted() -> None:
    bus = MemoryBus()
    chat, worker = bus.join("a"), bus.join("b")
    worker.stop_reading()
    before = worker.transport.written_bytes
    chat.send("b", {})
    assert not worker.inbox
    waiting = worker.transport.waiting_bytes
    assert waiting == worker.transport.written_bytes - before > 0
    worker.read_on()
    assert len(worker.inbox) == 1
    assert worker.transport.waiting_bytes == 0


def test_a_peer_that_reads_too_little_is_not_read_and_not_kept() -> None:
    bus = MemoryBus(wire=WireLimits(max_queue_bytes=500, max_unread_bytes=2_000))
    peer = bus.join("a")
    peer.stop_reading()
    pings = [peer.call("ping", {}) for _ in range(20)]
    assert not peer.transport.is_read_by_bus
    assert 500 < peer.transport.waiting_bytes < 700
    peer.read_on()
    assert all(ping.is_done for ping in pings)
    peer.stop_reading()
    other = bus.join("b")
    other.send("a", {"text": "x" * 3_000})
    assert not peer.is_connected
    assert list(bus.core.peers) == bus.core.present("b")


def test_a_half_closed_peer_says_nothing_more() -> None:
    bus = MemoryBus()
    peer, worker = bus.join("a"), bus.join("b")
    sent = peer.send("b", {})
    peer.half_close()
    unheard = peer.send("b", {})
    assert len(worker.inbox) == 1
    worker.next_message().ack()
    assert sent.is_done
    assert not unheard.is_done
    assert not peer.is_connected


def test_a_peer_that_left_gets_nothing_and_says_nothing() -> None:
    bus = MemoryBus()
    peer, worker = bus.join("a"), bus.join("b")
    sent = peer.send("b", {})
    peer.leave()
    worker.next_message().ack()
    peer.notify("b", {})
    assert not sent.is_done
    assert not worker.inbox
    assert "gone" in repr(peer)


def test_a_bus_that_stops_says_goodbye() -> None:
    bus = MemoryBus()
    line, web = bus.join("a"), bus.join("b", web_socket=True)
    bus.stop()
    assert not line.is_connected
    assert not web.is_connected
    assert web.framer.violation is not None
    assert web.framer.violation.rule == "goodbye"
    bus.advance(bus.connections.limits.linger_seconds)
    assert not bus.connections.open


def test_nothing_can_be_written_after_the_end() -> None:
    bus = MemoryBus()
    transport = bus.join("a").transport
    transport.write_eof()
    with pytest.raises(RuntimeError, match="after write_eof"):
        transport.write(b"x")


def test_frames_are_kept_as_they_came() -> None:
    peer = MemoryBus().connect()
    peer.feed(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert peer.frames == [
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"initialize first",'
        b'"data":{"rule":"initialize.first"}}}'
    ]
