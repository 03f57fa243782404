"""Access that is given or taken while peers are connected: tokens, grants, the policy."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bus.access.guarded import (
    GUEST,
    OTHER_GUEST,
    as_owner,
    connect_as,
    error_of,
    is_closed,
    join_as,
    join_with,
    new_token,
    open_guarded,
    owner_token,
    reload,
)
from tests.daemons import Loop
from tests.wire_peers import Transport, connect, join_by, until_gone


@pytest.mark.parametrize("policy", ["strict", "open"])
def test_a_revoked_token_closes_its_connections_at_once(
    policy: str, loop: Loop, opened: ExitStack
) -> None:
    with open_guarded(loop, settings={"policy": policy}) as daemon:
        bad, good = new_token(daemon, "bad"), new_token(daemon, "good")
        line = join_with(daemon, "tcp", bad, "peer:line", opened)
        web = join_with(daemon, "ws", bad, "peer:web", opened)
        other = join_with(daemon, "tcp", good, "peer:other", opened)
        owner = join_by(daemon, "unix", "peer:owner", opened)
        sent = owner.send_message("peer:web", {})
        web.next_message()
        owner.call("bus.revokeToken", {"name": "bad"})
        assert web.expect_close() == 1008
        assert line.expect_close() is None
        # Whoever waited for an answer of the closed one has it; nothing is routed to it.
        (ack,) = owner.answer_to(sent)["result"]["acks"]
        assert ack["message"] == "peer left before it answered"
        receipt = owner.call("sendMessage", {"to": "peer:line", "payload": {}})
        assert receipt["undelivered"] == "kept"  # until somebody may have the name again
        assert not is_closed(other)
        if policy == "strict":
            again = connect(daemon, "tcp")
            opened.callback(again.close)
            claim = {"clientId": "peer:line", "auth": {"token": bad}}
            assert error_of(again, "initialize", claim) == (-32005, "authentication")


def test_a_token_of_the_same_name_is_not_the_revoked_one(opened: ExitStack) -> None:
    with open_guarded("uvloop") as daemon:
        first = new_token(daemon, "twin")
        before = join_with(daemon, "tcp", first, "peer:1", opened)
        as_owner(daemon, "bus.revokeToken", {"name": "twin"})
        second = new_token(daemon, "twin")
        assert is_closed(before)
        assert second != first
        join_with(daemon, "tcp", second, "peer:1", opened)


@pytest.mark.parametrize("way", ["unix", "tcp", "ws"])
def test_the_owner_can_revoke_its_own_token_and_gets_another(
    way: Transport, opened: ExitStack
) -> None:
    with open_guarded("uvloop") as daemon:
        old = owner_token(daemon)
        web = join_with(daemon, "ws", old, "peer:web", opened)
        peer = (
            join_by(daemon, "unix", "peer:1", opened)
            if way == "unix"
            else join_with(daemon, way, old, "peer:1", opened)
        )
        assert peer.call("bus.revokeToken", {"name": "owner"}) == {"success": True}
        assert web.expect_close() == 1008
        if way == "unix":
            assert not is_closed(peer)
        else:
            assert peer.expect_close() == (1008 if way == "ws" else None)
        new = owner_token(daemon)
        assert new != old
        join_with(daemon, "tcp", new, "peer:2", opened)


def test_a_reload_closes_only_those_whose_grant_is_withdrawn(loop: Loop, opened: ExitStack) -> None:
    guests = {"name": "guests", "uid": GUEST}
    others = {"name": "others", "uid": OTHER_GUEST}
    bridge = {"name": "bridge", "token": "bridge", "client_ids": ["tg:*"]}
    with open_guarded(loop, [guests, others, bridge]) as daemon:
        token = new_token(daemon, "bridge")
        guest = join_as(GUEST, daemon, "peer:guest", opened)
        other = join_as(OTHER_GUEST, daemon, "peer:other", opened)
        web = join_with(daemon, "ws", token, "tg:1", opened)
        owner = join_by(daemon, "unix", "peer:owner", opened)
        # The bridge keeps its grant, but not its name.
        reload(daemon, [others, bridge | {"client_ids": ["discord:*"]}])
        assert guest.expect_close() is None
        assert web.expect_close() == 1008
        assert not is_closed(other)
        assert not is_closed(owner)
        again = connect_as(GUEST, daemon, opened)
        assert error_of(again, "initialize", {"clientId": "x"}) == (-32005, "authentication")


def test_a_reload_lets_in_whom_a_new_grant_is_for(loop: Loop, opened: ExitStack) -> None:
    canary = {"name": "canary", "uid": OTHER_GUEST}
    with open_guarded(loop, [canary]) as daemon:
        guest = connect_as(GUEST, daemon, opened)
        assert error_of(guest, "initialize", {"clientId": "g:1"}) == (-32005, "authentication")
        watched = join_as(OTHER_GUEST, daemon, "canary", opened)
        reload(daemon, [{"name": "guests", "uid": GUEST, "client_ids": ["g:*"]}])
        assert watched.expect_close() is None  # now the new grants count
        guest.initialize("g:1")


def test_a_reload_takes_rights_from_those_who_stay(opened: ExitStack) -> None:
    before = {"name": "guests", "uid": GUEST, "speak_as": ["as:*"]}
    canary = {"name": "canary", "uid": OTHER_GUEST}
    with open_guarded("uvloop", [before, canary]) as daemon:
        guest = join_as(GUEST, daemon, "g:1", opened)
        listener = join_as(GUEST, daemon, "g:2", opened)
        listener.call("subscribe", {"address": "news:*"})
        watched = join_as(OTHER_GUEST, daemon, "canary", opened)
        message = {"from": "as:1", "to": "desk:1", "payload": {}}
        guest.call("sendMessage", message)
        reload(daemon, [{"name": "guests", "uid": GUEST, "send_to": ["x:*"], "subscribe": []}])
        watched.expect_close()
        assert error_of(guest, "sendMessage", message) == (-32602, "grant.guests.speak_as")
        del message["from"]
        assert error_of(guest, "sendMessage", message) == (-32602, "grant.guests.send_to")
        # Who hears what it may hear no longer is closed: it would wait in vain without a word.
        assert is_closed(listener)


def test_a_reload_to_strict_closes_those_who_showed_no_token(opened: ExitStack) -> None:
    with open_guarded("uvloop", settings={"policy": "open"}) as daemon:
        token = new_token(daemon, "good")
        nobody = join_by(daemon, "tcp", "peer:nobody", opened)
        known = join_with(daemon, "tcp", token, "peer:known", opened)
        config = daemon.folder / "busd.toml"
        config.write_text(config.read_text().replace('"open"', '"strict"'))
        daemon.signal(signal.SIGHUP)
        assert nobody.expect_close() is None
        assert not is_closed(known)


def test_a_reload_with_a_mistake_changes_nothing(opened: ExitStack) -> None:
    guests = {"name": "guests", "uid": GUEST}
    with open_guarded("uvloop", [guests]) as daemon:
        guest = join_as(GUEST, daemon, "g:1", opened)
        reload(daemon, [{"name": "for nobody"}])
        daemon.is_blamed = True  # the mistake is an error in its log
        while "settings.refused" not in daemon.log():  # nothing else tells
            assert not is_closed(guest)
        assert "grant 1 is for nobody" in daemon.log()
        assert not is_closed(guest)


def test_a_token_revoked_by_hand_is_closed_by_a_reload(opened: ExitStack) -> None:
    with open_guarded("uvloop") as daemon:
        token = new_token(daemon, "bridge")
        peer = join_with(daemon, "ws", token, "tg:1", opened)
        owner = join_by(daemon, "unix", "peer:owner", opened)
        Path(daemon.folder / "state/tokens.json").unlink()
        daemon.signal(signal.SIGHUP)
        assert peer.expect_close() == 1008
        until_gone("tg:1", owner)
