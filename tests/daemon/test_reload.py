"""Reload at SIGHUP: what can change does, what cannot is named, and nobody is cut off."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemon.conftest import Reloading
from tests.daemons import Daemon, Loop, open_daemon, start_busd
from tests.http_pages import fetch
from tests.wire_peers import Peer, Transport, connect, join_by, until_nobody_listens

OPEN = 'policy = "open"\n'


def refusal(peer: Peer, method: str, params: Mapping[str, object]) -> tuple[int, str]:
    """Return the code and the rule by which a request is refused."""
    answer = peer.answer_to(peer.request(method, params))
    assert "error" in answer, answer
    return answer["error"]["code"], answer["error"]["data"]["rule"]


def test_settings_that_did_not_change_change_nothing(reloading: Reloading) -> None:
    [said] = reloading.hang_up()
    assert (said["event"], said["changed"]) == ("settings.reloaded", [])


def test_new_limits_hold_for_those_who_are_connected(
    reloading: Reloading, transport: Transport, opened: ExitStack
) -> None:
    alice, bob = (join_by(reloading.daemon, transport, name, opened) for name in ("ann", "bob"))
    big = {"text": "x" * 2000}
    first = alice.send_message("bob", big)
    message = bob.next_message()
    [said] = reloading.reload(OPEN + "delivery.max_unanswered = 1\nwire.max_frame_bytes = 1500\n")
    assert said["changed"] == ["wire.max_frame_bytes", "delivery.max_unanswered"]
    second = alice.answer_to(alice.send_message("bob"))["result"]
    assert second["acks"][0]["message"] == "peer is busy"
    # What was under way is not disturbed.
    bob.answer(message, {"success": True})
    assert alice.answer_to(first)["result"]["acks"][0]["success"]
    alice.send_message("bob", big)
    assert alice.next_json()["error"]["data"]["rule"] == "max_frame_bytes"
    alice.expect_close()
    reloading.reload(OPEN)
    carol = join_by(reloading.daemon, transport, "carol", opened)
    for _ in range(2):
        carol.send_message("bob", big)
        assert bob.next_message()["params"]["payload"] == big


def test_a_reload_refuses_no_message_and_disturbs_no_mail(
    reloading: Reloading, opened: ExitStack
) -> None:
    alice, bob = (join_by(reloading.daemon, "unix", name, opened) for name in ("alice", "bob"))

    def send(to: str, number: int) -> int:
        return alice.send_message(to, {"number": number}, delivery={"durable": True})

    first, waiting = send("bob", 1), send("agent:away", 2)
    assert alice.answer_to(waiting)["result"]["undelivered"] == "kept"
    messages = [bob.next_message()]
    [said] = reloading.reload(OPEN + "mail.ttl_seconds = 60.0\n")
    assert said["changed"] == ["mail.ttl_seconds"]
    second = send("bob", 3)
    messages.append(bob.next_message())
    for message in messages:
        bob.answer(message, {"success": True})
    for sent in (first, second):
        assert alice.answer_to(sent)["result"]["mail"]["state"] == "acked"
    away = join_by(reloading.daemon, "unix", "agent:away", opened)
    assert away.next_message()["params"]["payload"] == {"number": 2}


def test_a_shorter_time_to_answer_holds_for_what_waits_already(
    reloading: Reloading, opened: ExitStack
) -> None:
    alice, _ = (join_by(reloading.daemon, "unix", name, opened) for name in ("alice", "bob"))
    sent = alice.send_message("bob")
    alice.call("ping")
    reloading.reload(OPEN + "delivery.ack_seconds = 0.1\n")
    assert alice.answer_to(sent)["result"]["acks"][0]["message"] == "no answer in time"


@pytest.mark.parametrize("remote", ["tcp", "ws"])
def test_a_stricter_policy_closes_only_those_who_may_not_stay(
    reloading: Reloading, remote: Transport, opened: ExitStack
) -> None:
    daemon = reloading.daemon
    token = reloading.make_token("bridge")
    owner = join_by(daemon, "unix", "owner", opened)
    stranger = join_by(daemon, remote, "stranger", opened)
    bridge = connect(daemon, remote)
    opened.callback(bridge.close)
    bridge.initialize("bridge", auth={"token": token})
    [said] = reloading.reload('policy = "strict"\nidentify_loopback = false\n')
    assert said["changed"] == ["policy", "identify_loopback"]
    stranger.expect_close()
    owner.call("ping")
    bridge.call("ping")
    newcomer = connect(daemon, remote)
    opened.callback(newcomer.close)
    assert refusal(newcomer, "initialize", {"clientId": "x"}) == (-32005, "authentication")
    reloading.reload(OPEN)
    newcomer.initialize("x")
    bridge.call("ping")


def test_grants_that_come_and_go_hold_for_those_who_are_connected(
    reloading: Reloading, opened: ExitStack
) -> None:
    token = reloading.make_token("bridge")
    strict = 'policy = "strict"\n'
    reloading.reload(strict)
    bridge = connect(reloading.daemon, "tcp")
    opened.callback(bridge.close)
    bridge.initialize("tg:bridge", auth={"token": token})
    to_bob, as_chat = {"to": "agent:bob", "payload": {}}, {"to": "x", "from": "tg:1", "payload": {}}
    bridge.call("sendMessage", to_bob)
    assert refusal(bridge, "sendMessage", as_chat) == (-32602, "grant.token bridge.speak_as")
    grant = '[[grant]]\nname = "tg"\ntoken = "bridge"\nspeak_as = ["tg:*"]\nsend_to = ["x"]\n'
    [said] = reloading.reload(strict + grant)
    assert said["changed"] == ["grant"]
    bridge.call("sendMessage", as_chat)
    assert refusal(bridge, "sendMessage", to_bob) == (-32602, "grant.tg.send_to")
    reloading.reload(strict + grant + "messages_per_second = 0.001\nburst = 1\n")
    bridge.call("sendMessage", as_chat)
    limited = refusal(bridge, "sendMessage", as_chat)
    assert limited == (-32004, "grant.tg.messages_per_second")
    # And one that takes its name away from it:
    reloading.reload(strict + grant + 'client_ids = ["discord:*"]\n')
    bridge.expect_close()


def test_origins_change(reloading: Reloading) -> None:
    site = "Origin: https://chat.example"
    assert fetch(reloading.daemon, "/livez", site).status == 403
    reloading.reload(OPEN + 'allowed_origins = ["https://chat.example"]\n')
    assert fetch(reloading.daemon, "/livez", site).status == 200
    reloading.reload(OPEN)
    assert fetch(reloading.daemon, "/livez", site).status == 403


def test_what_is_hardly_meant_is_named(reloading: Reloading) -> None:
    warned, said = reloading.reload(OPEN + "agents.stop_seconds = 20\n")
    assert warned["event"] == "settings.doubtful"
    assert warned["reason"].startswith("agents.stop_seconds is 20 and plugins.stop_seconds only 10")
    assert said["changed"] == ["agents.stop_seconds"]


def test_names_of_this_host_change(reloading: Reloading) -> None:
    def status() -> int:
        return fetch(reloading.daemon, "/metrics", hosts=["Bus.example:7892"]).status

    assert status() == 403
    reloading.reload(OPEN + 'allowed_hosts = ["bus.Example"]\n')
    assert status() == 200
    reloading.reload(OPEN)
    assert status() == 403


def test_the_activity_log_can_be_told_to_keep_less(reloading: Reloading, opened: ExitStack) -> None:
    alice = join_by(reloading.daemon, "unix", "alice", opened)
    payloads = []
    for number, kept in enumerate(("full", "off", "head")):
        reloading.reload(f'{OPEN}journal = {{payload = "{kept}", head_bytes = 4}}\n')
        alice.call("sendMessage", {"to": "x", "messageId": f"m{number}", "payload": {"a": 1}})
        [attempt] = alice.call("bus.trace", {"messageId": f"m{number}"})["attempts"]
        payloads.append(attempt["payload"])
    assert payloads == ['{"a": 1}', None, '{"a"… (8 bytes)']


def test_what_needs_a_restart_is_named_each_time_and_the_rest_is_taken(
    loop: Loop, opened: ExitStack
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="busd-test-"))
    opened.callback(shutil.rmtree, folder)
    fixed = f'listen = ["unix:{folder}/bus.sock", "tcp://127.0.0.1:0"]\nstate = "{folder}/state"\n'
    config = folder / "busd.toml"
    config.write_text(f'{OPEN}{fixed}loop = "{loop}"\n')
    daemon = Daemon(start_busd(["serve", "--json", "--config", str(config)], folder), folder)
    opened.callback(daemon.close)
    opened.callback(daemon.stop)
    reloading = Reloading(daemon)
    alice = join_by(daemon, "unix", "alice", opened)
    alice.call("sendMessage", {"to": "x", "messageId": "m1", "payload": {}})
    changed = (
        f'listen = ["unix:{folder}/other.sock"]\nstate = "{folder}/other"\nloop = "asyncio"\n'
        'log_level = "error"\njournal.enabled = false\njournal.keep_days = 3.0\n'
    )
    for expected in (["journal.keep_days"], []):
        reloaded, restart = reloading.reload(OPEN + changed)
        assert (reloaded["event"], reloaded["changed"]) == ("settings.reloaded", expected)
        assert (restart["event"], restart["level"]) == ("settings.need_restart", "warning")
        assert restart["settings"] == ["listen", "state", "loop", "log_level", "journal.enabled"]
    # It goes on where it was: same sockets, same log, same tokens.
    alice.call("sendMessage", {"to": "x", "messageId": "m1", "payload": {}})
    assert len(alice.call("bus.trace", {"messageId": "m1"})["attempts"]) == 2
    assert not (folder / "other").exists()
    assert f'loop="{loop}"' in fetch(daemon, "/metrics").text
    [reloaded] = reloading.reload(f'{OPEN}{fixed}loop = "{loop}"\n')
    assert reloaded["changed"] == ["journal.keep_days"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('polcy = "strict"', "unknown setting 'polcy'; did you mean 'policy'?"),
        ("drain_seconds = 0", "drain_seconds must be more than 0, not 0.0"),
        ("[[grant]]", "grant 1 is for nobody: name a uid, unit, token or certificate"),
        ("drain_seconds =", "Invalid value (at end of document)"),
    ],
)
def test_with_a_mistake_the_old_settings_stay(
    reloading: Reloading, opened: ExitStack, text: str, problem: str
) -> None:
    daemon = reloading.daemon
    daemon.is_blamed = True  # the operator's fault is an error in the log, as it should be
    reloading.reload(OPEN + "delivery.max_unanswered = 1\n")
    alice, stranger = (join_by(daemon, each, each, opened) for each in ("unix", "tcp"))
    [said] = reloading.reload(f'policy = "strict"\ndelivery.max_unanswered = 5\n{text}')
    assert (said["event"], said["level"]) == ("settings.refused", "error")
    assert said["reason"] == f"{reloading.config}: {problem}"
    alice.send_message("tcp")
    stranger.next_message()
    busy = alice.answer_to(alice.send_message("tcp"))["result"]["acks"][0]
    assert busy["message"] == "peer is busy"
    join_by(daemon, "tcp", "another", opened)
    # And when it is mended, it is taken.
    [said] = reloading.reload(OPEN)
    assert said["changed"] == ["delivery.max_unanswered"]


def test_a_file_that_is_gone_is_a_mistake_too(reloading: Reloading) -> None:
    reloading.daemon.is_blamed = True
    reloading.config.unlink()
    [said] = reloading.hang_up()
    assert said["event"] == "settings.refused"
    assert said["reason"] == f"cannot read {reloading.config}: No such file or directory"


def test_conf_d_is_read_again_too(reloading: Reloading) -> None:
    (reloading.daemon.folder / "conf.d").mkdir()
    (reloading.daemon.folder / "conf.d/a.toml").write_text("drain_seconds = 3.0")
    [said] = reloading.hang_up()
    assert said["changed"] == ["drain_seconds"]


def test_a_bus_that_stops_is_not_hurried_by_a_reload(loop: Loop, opened: ExitStack) -> None:
    with open_daemon(loop) as daemon:
        alice, bob = (join_by(daemon, "unix", name, opened) for name in ("alice", "bob"))
        sent = alice.send_message("bob")
        message = bob.next_message()
        daemon.signal(signal.SIGTERM)
        until_nobody_listens(daemon)
        daemon.signal(signal.SIGHUP)
        for _ in range(20):  # it has the time to make the mistake
            alice.answer_to(alice.request("ping"))
        bob.answer(message, {"success": True})
        assert alice.answer_to(sent)["result"]["acks"][0]["success"]
        assert daemon.wait() == 0
