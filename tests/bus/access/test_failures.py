"""Failed logins: ten thousand of them disturb nobody."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack

import pytest

from busd.bus.authenticator import Authenticator
from busd.errors import AuthenticationFailed, TooManyFailures
from busd.testing import FakeClock
from busd.wire.credentials import Credentials
from tests.bus.access.guarded import join_with, new_token, open_guarded
from tests.daemons import Daemon, Loop
from tests.wire_peers import Json, Peer, Transport, connect, join_by

_CONNECTIONS, _TRIES = 100, 100


@pytest.mark.parametrize("way", ["tcp", "ws"])
def test_ten_thousand_failed_logins_disturb_nobody(
    way: Transport, loop: Loop, opened: ExitStack
) -> None:
    with open_guarded(loop) as daemon:
        token = new_token(daemon, "bridge")
        alice = join_with(daemon, "ws", token, "peer:alice", opened)
        bob = join_by(daemon, "unix", "peer:bob", opened)
        errors: list[Json] = []
        began = time.monotonic()
        for number in range(_CONNECTIONS):
            errors += _fail_often(daemon, way)
            if number % 10 == 0:
                _talk(alice, bob)
                join_with(daemon, way, token, f"peer:{number}", opened)
        seconds = time.monotonic() - began

        codes = Counter((error["code"], error["data"]["rule"]) for error in errors)
        told_why = codes.pop((-32005, "authentication"))
        assert told_why <= 20 + seconds + 1
        assert codes == {(-32004, "authentication.rate"): _CONNECTIONS * _TRIES - told_why}
        limited = [error for error in errors if error["code"] == -32004]
        assert all(error["message"] == "too many failed logins" for error in limited)
        assert all(0 <= error["data"]["retrySeconds"] <= 1 for error in limited)
        lines = daemon.log().splitlines()
        assert len([line for line in lines if "peer.refused" in line]) == told_why
        assert len(lines) <= told_why + 5


def _fail_often(daemon: Daemon, way: Transport) -> list[Json]:
    peer = connect(daemon, way)
    try:
        auth = {"token": "busd_wrong"}
        params = {"clientId": "peer:thief", "auth": auth}
        numbers = [peer.request("initialize", params) for _ in range(_TRIES)]
        return [peer.answer_to(number)["error"] for number in numbers]
    finally:
        peer.close()


def _talk(alice: Peer, bob: Peer) -> None:
    sent = alice.send_message("peer:bob", {"n": 1})
    bob.answer(bob.next_message(), {"success": True})
    assert alice.answer_to(sent)["result"]["acks"][0]["success"]


def test_a_wrong_token_is_told_why_again_when_time_has_passed() -> None:
    clock = FakeClock()
    authenticator = Authenticator("strict", clock=clock)
    for _ in range(20):
        with pytest.raises(AuthenticationFailed):
            authenticator.admit(Credentials(), "wrong")
    with pytest.raises(TooManyFailures) as refused:
        authenticator.admit(Credentials(), "wrong")
    assert refused.value.data == {"rule": "authentication.rate", "retrySeconds": 1.0}
    clock.now += 1
    with pytest.raises(AuthenticationFailed):
        authenticator.admit(Credentials(), "wrong")


def test_a_flood_of_refusals_does_not_fill_the_log(opened: ExitStack) -> None:
    mine = {"name": "mine", "token": "mine", "send_to": ["desk:*"]}
    with open_guarded("uvloop", [mine]) as daemon:
        peer = join_with(daemon, "tcp", new_token(daemon, "mine"), "peer:1", opened)
        began = time.monotonic()
        for _ in range(20):
            numbers = [peer.send_message("vault:1") for _ in range(100)]
            assert all("error" in peer.answer_to(number) for number in numbers)
        seconds = time.monotonic() - began
        assert len(daemon.log().splitlines()) <= 100 + 10 * seconds + 5
