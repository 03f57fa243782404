"""Limits of a grant: messages per second, bytes per frame."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from busd.bus.access import Grant
from busd.bus.bucket import Bucket
from busd.testing import FakeClock, MemoryBus
from busd.wire.credentials import Credentials
from tests.bus.access.guarded import join_with, new_token, open_guarded, show_token
from tests.daemons import Loop
from tests.wire_peers import Closed, Transport, WebSocketPeer, join_by


def test_a_bucket_gives_so_many_at_once_and_then_so_many_a_second() -> None:
    clock = FakeClock()
    bucket = Bucket(2.0, 3, clock)
    assert [bucket.take() for _ in range(4)] == [0, 0, 0, 0.5]
    clock.now += 0.25
    assert bucket.take() == 0.25  # asking in vain costs nothing
    clock.now += 0.25
    assert [bucket.take(), bucket.take()] == [0, 0.5]
    clock.now += 3600
    assert [bucket.take() for _ in range(4)] == [0, 0, 0, 0.5]


def test_one_message_too_many_is_refused_until_time_has_passed() -> None:
    slow = Grant(name="slow", uid=5, messages_per_second=2, burst=3)
    bus = MemoryBus(policy="strict", grants=[slow, Grant(name="free", uid=6)])
    peer = bus.connect("guest:1", credentials=Credentials(uid=5))
    peer.initialize().check()
    free = bus.connect("guest:2", credentials=Credentials(uid=6))
    free.initialize().check()
    sent = [peer.send("nobody", {}) for _ in range(4)]
    assert [each.error for each in sent[:3]] == [None] * 3
    error = sent[3].error
    assert error is not None
    assert (error.code, error.message) == (-32004, "too many messages")
    assert error.data == {"rule": "grant.slow.messages_per_second", "retrySeconds": 0.5}
    assert free.send("nobody", {}).error is None
    bus.advance(0.5)
    assert peer.send("nobody", {}).error is None
    assert peer.send("nobody", {}).error is not None
    peer.call("ping", {}).check()  # only messages count


def test_a_daemon_refuses_one_message_too_many(
    loop: Loop, transport: Transport, opened: ExitStack
) -> None:
    slow = {"name": "slow", "token": "slow", "messages_per_second": 0.001, "burst": 5}
    with open_guarded(loop, [slow]) as daemon:
        peer = join_with(daemon, transport, new_token(daemon, "slow"), "guest:1", opened)
        if transport == "unix":  # there we are the owner, too, and that is without limit
            for number in [peer.send_message("nobody") for _ in range(10)]:
                assert "result" in peer.answer_to(number)
            return
        answers = [peer.answer_to(peer.send_message("nobody")) for _ in range(7)]
        assert ["result" in answer for answer in answers] == [True] * 5 + [False] * 2
        error = answers[-1]["error"]
        assert error["code"] == -32004
        assert error["data"]["rule"] == "grant.slow.messages_per_second"
        assert 0 < error["data"]["retrySeconds"] <= 1000
        assert peer.call("ping")
        owner = join_by(daemon, "unix", "owner:1", opened)
        owner.call("sendMessage", {"to": "nobody", "payload": {}})


@pytest.mark.parametrize("line_transport", ["tcp", "ws"])
def test_a_grant_makes_frames_smaller_or_larger(
    line_transport: Transport, opened: ExitStack
) -> None:
    grants = [
        {"name": "small", "token": "small", "max_frame_bytes": 2048},
        {"name": "large", "token": "large", "max_frame_bytes": 3_000_000},
    ]
    with open_guarded("uvloop", grants) as daemon:
        for name, limit in (("small", 2048), ("large", 3_000_000)):
            token = new_token(daemon, name)
            peer, more = show_token(daemon, line_transport, "auth", token, opened)
            welcome = peer.initialize("guest:1", **more)
            assert welcome["capabilities"]["extensions"]["maxFrameBytes"] == limit
            room = {"text": "x" * (limit - 300)}
            assert "result" in peer.answer_to(peer.send_message("nobody", room))
            peer.send_bytes(b'{"jsonrpc": "2.0", "method": "' + b"x" * limit + b'"}')
            error = peer.next_json()["error"]
            assert (error["code"], error["data"]["rule"]) == (-32600, "max_frame_bytes")
            with pytest.raises(Closed) as closed:
                peer.read_frame()
            assert closed.value.code == (1009 if isinstance(peer, WebSocketPeer) else None)
