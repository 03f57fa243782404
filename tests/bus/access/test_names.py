"""Names: forged senders, names of others, and the policy that allows any."""

from __future__ import annotations

from contextlib import ExitStack

from tests.bus.access.conftest import Guarded
from tests.bus.access.guarded import GUEST, error_of, join_as, join_with, open_guarded
from tests.daemons import Daemon, Loop
from tests.wire_peers import Transport, connect


def test_a_forged_sender_reaches_nobody_and_is_logged(guarded: Guarded, opened: ExitStack) -> None:
    daemon, tokens = guarded
    desk = join_with(daemon, "tcp", tokens["owner"], "desk:forged", opened)
    guest = join_as(GUEST, daemon, "guest:forger", opened)
    message = {"from": "agent:boss", "to": "desk:forged", "payload": {}}
    assert error_of(guest, "sendMessage", message) == (-32602, "grant.guests.speak_as")
    desk.expect_nothing()
    refusals = [line for line in daemon.log().splitlines() if '"guest:forger"' in line]
    assert len(refusals) == 1
    assert "message.refused" in refusals[0]
    assert "grant.guests.speak_as" in refusals[0]


def test_a_forged_sender_in_a_batch_or_a_notification_reaches_nobody(
    guarded: Guarded, opened: ExitStack
) -> None:
    daemon, tokens = guarded
    desk = join_with(daemon, "tcp", tokens["owner"], "desk:batch", opened)
    guest = join_with(daemon, "ws", tokens["limited"], "guest:batch", opened)
    forged = {"from": "agent:boss", "to": "desk:batch", "payload": {}}
    call = {"jsonrpc": "2.0", "method": "sendMessage", "params": forged}
    guest.send_json([call | {"id": 1}, call])
    (answer,) = guest.next_json()
    assert answer["error"]["data"]["rule"] == "grant.limited.speak_as"
    guest.send_json(call)
    guest.expect_nothing()
    desk.expect_nothing()


def test_who_claims_the_name_of_another_gets_none_of_its_messages(
    guarded: Guarded, opened: ExitStack
) -> None:
    daemon, tokens = guarded
    bob = join_with(daemon, "ws", tokens["plain"], "peer:claimed", opened)
    thief = connect(daemon, "tcp")
    opened.callback(thief.close)
    claim = {"clientId": "peer:claimed", "auth": {"token": tokens["limited"]}}
    answer = thief.answer_to(thief.request("initialize", claim))
    assert answer["error"] == {
        "code": -32602,
        "message": "token limited may not be peer:claimed",
        "data": {"rule": "grant.limited.client_ids"},
    }
    alice = join_with(daemon, "tcp", tokens["plain"], "peer:alice", opened)
    sent = alice.send_message("peer:claimed", {"secret": 1})
    bob.answer(bob.next_message(), {"success": True})
    assert [a["clientId"] for a in alice.answer_to(sent)["result"]["acks"]] == ["peer:claimed"]
    assert error_of(thief, "subscribe", {"address": "peer:claimed"})[0] == -32001
    # A refused name does not end the connection: its own is still to be had.
    thief.initialize("guest:thief", auth={"token": tokens["limited"]})


def test_every_refusal_is_in_the_log_with_its_rule(guarded: Guarded, opened: ExitStack) -> None:
    guest = join_with(guarded.daemon, "tcp", guarded.tokens["limited"], "guest:logged", opened)
    error_of(guest, "subscribe", {"address": "logged:sub"})
    error_of(guest, "sendMessage", {"to": "logged:send", "payload": {}})
    lines = guarded.daemon.log().splitlines()
    for word, rule in (("logged:sub", "subscribe"), ("logged:send", "send_to")):
        (found,) = [line for line in lines if word in line]
        assert f"grant.limited.{rule}" in found


def test_policy_open_admits_everybody_as_anybody(
    daemon: Daemon, transport: Transport, opened: ExitStack, suffix: str
) -> None:
    for auth in ({}, {"auth": {"token": "nonsense"}}):
        peer = connect(daemon, transport)
        opened.callback(peer.close)
        peer.initialize("tg:1" + suffix, **auth)
        peer.call("subscribe", {"address": "whatever:*"})
        peer.call("sendMessage", {"from": "agent:x", "to": "nobody" + suffix, "payload": {}})


def test_policy_open_admits_other_users(loop: Loop, opened: ExitStack) -> None:
    with open_guarded(loop, settings={"policy": "open"}) as daemon:
        guest = join_as(GUEST, daemon, "guest:1", opened)
        guest.call("sendMessage", {"from": "agent:x", "to": "nobody", "payload": {}})
