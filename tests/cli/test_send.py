"""`busd send`: what is sent, what is printed, and which exit code tells what."""

from __future__ import annotations

import json
import re
import socket
import threading
from typing import Any

import pytest

from busd import Refuse, SyncClient
from busd.client.sync import SyncIncoming
from tests.cli.conftest import Join
from tests.cli.terminal import Said, Terminal
from tests.conftest import DaemonWith
from tests.daemons import PATIENCE_SECONDS


def one_line(said: Said) -> str:
    """Return the one line that a command complained in."""
    assert said.err.startswith("busd: "), said.err
    assert said.err.count("\n") == 1, said.err
    return said.err.removeprefix("busd: ").rstrip()


def test_wait_prints_the_acks(terminal: Terminal, join: Join) -> None:
    bob = join("agent:bob")
    bob.on()(lambda message: {"type": "fine"})
    said = terminal.busd("send", bob.client_id, "hello", "--wait")
    assert said == (0, f'{bob.client_id}: ok {{"type":"fine"}}\n', "")


def test_an_empty_ack_is_just_ok(terminal: Terminal, bob: SyncClient) -> None:
    said = terminal.busd("send", bob.client_id, "hello", "-w")
    assert said == (0, f"{bob.client_id}: ok\n", "")


def test_without_wait_it_prints_the_id_and_does_not_wait(terminal: Terminal, join: Join) -> None:
    bob = join("agent:bob")
    ids: list[str] = []
    has_ended, has_answered = threading.Event(), threading.Event()

    @bob.on()
    def answer_late(message: SyncIncoming) -> None:
        ids.append(message.message_id)
        assert has_ended.wait(PATIENCE_SECONDS)
        has_answered.set()

    said = terminal.busd("send", bob.client_id, "hello")
    assert not has_answered.is_set()
    has_ended.set()
    assert said == (0, f"{ids[0]}\n", "")
    assert has_answered.wait(PATIENCE_SECONDS)


def test_a_text_is_a_chat_message_from_this_terminal(terminal: Terminal, join: Join) -> None:
    bob = join("agent:bob")
    seen: list[SyncIncoming] = []
    bob.on()(seen.append)
    assert terminal.busd("send", bob.client_id, "hello", "--wait").code == 0
    [message] = seen
    assert message.sender.startswith("cli:")
    assert message.payload.keys() == {"type", "from", "timestamp", "content"}
    assert (message.type, message.payload["from"]) == ("tg_message", message.sender)
    assert message.payload["content"] == {
        "text": "hello",
        "senderId": message.sender,
        "channel": "terminal",
    }


def test_type_and_from_are_what_was_said(terminal: Terminal, join: Join) -> None:
    bob = join("agent:bob")
    seen: list[SyncIncoming] = []
    bob.on()(seen.append)
    args = ("--type", "note", "--from", "tg:7", "--wait")
    assert terminal.busd("send", bob.client_id, "hello", *args).code == 0
    assert (seen[0].type, seen[0].sender, seen[0].payload["from"]) == ("note", "tg:7", "tg:7")
    # No channel: it would make another chat of it than what tg:7 itself says.
    assert seen[0].payload["content"] == {"text": "hello", "senderId": "tg:7"}


@pytest.mark.parametrize(
    "payload",
    [{}, {"type": "ping", "n": 10**30, "deep": [{"a": None}]}, {"text": "über\n\t\u2028"}],
)
def test_a_payload_is_sent_as_it_is(terminal: Terminal, join: Join, payload: Any) -> None:
    bob = join("agent:bob")
    seen: list[Any] = []

    @bob.on()
    def note(payload: dict[str, Any]) -> None:
        seen.append(payload)

    args = ("--payload", json.dumps(payload, indent=2), "--wait")
    assert terminal.busd("send", bob.client_id, *args).code == 0
    assert seen == [payload]


def test_a_dash_reads_standard_input(terminal: Terminal, join: Join) -> None:
    bob = join("agent:bob")
    texts: list[str] = []
    bob.on()(lambda message: texts.append(message.payload["content"]["text"]))
    text = "first line\nzweite Zeile: ü\n" * 1000
    assert terminal.busd("send", bob.client_id, "-", "--wait", stdin=text).code == 0
    assert texts == [text]


@pytest.mark.parametrize("args", [["--wait"], []], ids=["wait", "no wait"])
def test_a_message_for_nobody_fails(terminal: Terminal, suffix: str, args: list[str]) -> None:
    said = terminal.busd("send", f"agent:nobody{suffix}", "hello", *args)
    assert said.code == 1
    assert one_line(said) == f"nobody is subscribed to agent:nobody{suffix}"


def test_a_failed_ack_fails_and_the_others_are_printed(
    terminal: Terminal, join: Join, suffix: str
) -> None:
    bob, cat = join("agent:bob"), join("agent:cat")
    bob.on()(lambda message: None)

    @cat.on()
    def refuse(message: SyncIncoming) -> None:
        raise Refuse("not today")

    for each in (bob, cat):
        each.subscribe(f"agent:all{suffix}")
    said = terminal.busd("send", f"agent:all{suffix}", "hello", "--wait")
    lines = sorted(said.out.splitlines())
    assert lines == [f"{bob.client_id}: ok", f"{cat.client_id}: failed not today"]
    assert (said.code, said.err) == (1, "")


@pytest.mark.parametrize("args", [["--wait"], []], ids=["wait", "no wait"])
def test_a_busy_addressee_is_to_be_tried_again(
    daemon_with: DaemonWith, lonely: Terminal, args: list[str]
) -> None:
    daemon = daemon_with({"delivery.max_unanswered": 1})
    address = f"unix:{daemon.path}"
    with SyncClient("agent:bob", address=address) as bob:
        bob.post("agent:bob", {})  # nobody reads it: there is no room for another one
        said = lonely.busd("send", "agent:bob", "hello", "--address", address, *args)
    assert said.code == 75
    assert one_line(said) == "agent:bob is busy; try again in 1 s"


def test_an_addressee_that_asks_for_patience_is_to_be_tried_again(
    terminal: Terminal, join: Join
) -> None:
    bob = join("agent:bob")

    @bob.on()
    def later(message: SyncIncoming) -> None:
        raise Refuse("oven is cold", retry_seconds=2)

    said = terminal.busd("send", bob.client_id, "hello", "--wait")
    assert said.code == 75
    assert said.out == f"{bob.client_id}: failed oven is cold\n"


def test_no_answer_in_time_is_to_be_tried_again(terminal: Terminal, join: Join) -> None:
    bob = join("agent:bob")  # it never reads its messages
    # Long enough to connect, also on a busy machine.
    said = terminal.busd("send", bob.client_id, "hello", "--wait", "--timeout", "2")
    assert said.code == 75
    assert one_line(said) == f"the bus did not answer in time: message to {bob.client_id}"


@pytest.mark.parametrize("args", [["--wait"], []], ids=["wait", "no wait"])
def test_a_bus_that_hangs_is_to_be_tried_again(lonely: Terminal, args: list[str]) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        said = lonely.busd("send", "bob", "hi", "-a", address, "--timeout", "0.05", *args)
    assert said.code == 75
    assert one_line(said) == f"the server at {address} did not answer in time"


def test_a_strict_bus_refuses_another_sender_by_rule(
    daemon_with: DaemonWith, lonely: Terminal
) -> None:
    daemon = daemon_with({"policy": "strict"})
    token = lonely.busd("token", "new", "plain", "-a", f"unix:{daemon.path}").out.strip()
    address = f"tcp://:{token}@127.0.0.1:{daemon.port}"
    for args in (["--wait"], []):
        said = lonely.busd("send", "bob", "hi", "--from", "tg:7", "-a", address, *args)
        assert said.code == 77
        assert "may not speak as tg:7" in one_line(said)


@pytest.mark.parametrize(
    "args",
    [
        ["two words", "hello"],
        ["agent:*", "hello"],
        ["", "hello"],
        ["agent:bob", "hello", "--from", "two words"],
    ],
)
def test_a_malformed_address_is_a_mistake_in_typing(lonely: Terminal, args: list[str]) -> None:
    said = lonely.busd("send", *args)
    assert said.code == 2
    assert "malformed address" in one_line(said)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["agent:bob"], "give either TEXT"),
        (["agent:bob", "hello", "--payload", "{}"], "give either TEXT"),
        (["agent:bob", "--payload", "{"], "--payload must be a JSON object"),
        (["agent:bob", "--payload", "[1]"], "--payload must be a JSON object"),
        (["agent:bob", "--payload", "[" * 100_000], "--payload must be a JSON object"),
        (["agent:bob", "hello", "--timeout", "0"], "0.0 is not in the range"),
        (["agent:bob", "hello", "--timeout", "soon"], "is not a valid float"),
        (["agent:bob", "hello", "--colour"], "No such option"),
        ([], "Missing argument 'TO'"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_mistake_in_typing_is_explained(lonely: Terminal, args: list[str], problem: str) -> None:
    said = lonely.busd("send", *args)
    assert (said.code, said.out) == (2, "")
    assert problem in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("args", "locale"),
    [
        (["-"], "C.UTF-8"),
        (["-"], "C"),
        (["\udcff"], "C.UTF-8"),
        (["hello", "--type", "\udcff"], "C.UTF-8"),
        (["--payload", '{"a": "\udcff"}'], "C.UTF-8"),
    ],
    ids=["standard input", "standard input in C", "text", "type", "payload"],
)
def test_what_is_not_utf8_is_a_mistake_in_typing(
    terminal: Terminal, bob: SyncClient, args: list[str], locale: str
) -> None:
    said = terminal.busd("send", bob.client_id, *args, stdin=b"\xff\xfe", LC_ALL=locale)
    assert said.code == 2
    assert one_line(said) == "what was typed or piped in is not UTF-8"


@pytest.mark.parametrize("args", [["--wait"], []], ids=["wait", "no wait"])
def test_json_is_the_receipt(terminal: Terminal, bob: SyncClient, args: list[str]) -> None:
    said = terminal.busd("send", bob.client_id, "hello", "--json", *args)
    receipt = json.loads(said.out)
    assert (said.code, said.err, receipt["accepted"]) == (0, "", True)
    assert receipt["messageId"].startswith("msg_")
    if args:
        [ack] = receipt["acks"]
        assert (ack["success"], ack["clientId"]) == (True, bob.client_id)


def test_acks_cannot_steer_the_terminal(terminal: Terminal, join: Join) -> None:
    bob = join("agent:bob")
    evil = "\x1b[2J\x07\u009b1m\u202eabc"

    @bob.on("no")
    def refuse(message: SyncIncoming) -> None:
        raise Refuse(evil)

    bob.on()(lambda message: {"text": evil})
    for kind, code in (("no", 1), ("yes", 0)):
        said = terminal.busd("send", bob.client_id, "hi", "--type", kind, "--wait")
        assert said.code == code
        assert said.out.rstrip("\n").isprintable()
        assert "abc" in said.out
    said = terminal.busd("send", bob.client_id, "hi", "--wait", "--json")
    assert said.out.rstrip("\n").isprintable()
    assert json.loads(said.out)["acks"][0]["payload"] == {"text": evil}


# Durable


def test_a_durable_message_for_somebody_away_is_kept(
    terminal: Terminal, join: Join, suffix: str
) -> None:
    for args in ([], ["--wait"]):
        said = terminal.busd("send", f"agent:away{suffix}", "hi", "--durable", "--ttl", "1h", *args)
        assert said.code == 0
        assert re.fullmatch(rf"kept for agent:away{suffix} until 20\S+Z\n", said.err)
    bob = join("agent:away")
    assert [next(bob.messages()).payload["content"]["text"] for _ in range(2)] == ["hi"] * 2


def test_a_durable_message_for_somebody_here_gives_the_acks(
    terminal: Terminal, bob: SyncClient
) -> None:
    said = terminal.busd("send", bob.client_id, "hi", "--durable", "--wait")
    assert said == (0, f"{bob.client_id}: ok\n", "")


def test_an_address_that_keeps_mail_keeps_any_message(terminal: Terminal, suffix: str) -> None:
    with SyncClient(f"agent:back{suffix}", address=terminal.environment["BUSD_ADDRESS"]):
        pass
    said = terminal.busd("send", f"agent:back{suffix}", "hi", "--wait")
    assert (said.code, said.out) == (0, "")
    assert said.err.startswith(f"kept for agent:back{suffix}")


def test_a_message_that_is_tried_again_says_so(terminal: Terminal, join: Join) -> None:
    bob = join("agent:bob")

    @bob.on()
    def later(message: SyncIncoming) -> None:
        raise Refuse("oven is cold", retry_seconds=600)

    said = terminal.busd("send", bob.client_id, "hi", "--durable", "--wait")
    assert (said.code, said.out) == (0, f"{bob.client_id}: failed oven is cold\n")
    words = f"{bob.client_id} has not accepted it (oven is cold); the bus goes on trying until 20"
    assert said.err.startswith(words)


def test_a_message_that_is_refused_for_good_fails(terminal: Terminal, join: Join) -> None:
    bob = join("agent:bob")

    @bob.on()
    def never(message: SyncIncoming) -> None:
        raise Refuse("never")

    said = terminal.busd("send", bob.client_id, "hi", "--durable", "--wait")
    assert said == (1, f"{bob.client_id}: failed never\n", "")


def test_a_key_alone_delivers_the_same_words_once(terminal: Terminal, join: Join) -> None:
    bob = join("agent:bob")
    seen: list[str] = []
    bob.on()(lambda message: seen.append(message.message_id))
    args = (bob.client_id, "pay", "--idempotency-key", f"alone {bob.client_id}")
    first, second = (terminal.busd("send", *args) for _ in range(2))
    assert (first.code, second.code, len(seen)) == (0, 0, 1)
    assert second.err == f"sent before as {seen[0]}; not delivered again\n"


def test_a_key_delivers_a_message_once(terminal: Terminal, join: Join) -> None:
    bob = join("agent:bob")
    seen: list[str] = []
    bob.on()(lambda message: seen.append(message.message_id))
    args = (bob.client_id, "--payload", "{}", "--from", "tg:7", "--idempotency-key", bob.client_id)
    first, second = (terminal.busd("send", *args) for _ in range(2))
    assert (first.code, second.code, len(seen)) == (0, 0, 1)
    assert first.out == second.out == f"{seen[0]}\n"
    assert second.err == f"sent before as {seen[0]}; not delivered again\n"
    said = terminal.busd("send", bob.client_id, "other", *args[3:])
    assert said.code == 2
    assert f"the idempotency key was used for another message, {seen[0]}" in one_line(said)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["--ttl", "soon"], "'soon' is no duration: write 30s, 10m, 1h or 7d"),
        (["--ttl", "-5m"], "'-5m' is no duration"),
        (["--ttl", "10"], "'10' is no duration"),
        (["--ttl", "1e3s"], "'1e3s' is no duration"),
        (["--ttl", "0s"], "'0s' is too short"),
        (["--ttl", "9" * 400 + "d"], "is too long"),
        (["--ttl", "99999999d"], "'99999999d' is too long"),
        (["--idempotency-key", ""], "a key has 1 to 256 characters"),
        (["--idempotency-key", "x" * 257], "a key has 1 to 256 characters"),
        (["--idempotency-key", "x" * 100_000], "a key has 1 to 256 characters"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
def test_a_duration_or_key_that_is_none_is_a_mistake_in_typing(
    lonely: Terminal, args: list[str], problem: str
) -> None:
    said = lonely.busd("send", "agent:bob", "hi", "--durable", *args)
    assert (said.code, said.out) == (2, "")
    assert problem in said.err


def test_a_ttl_over_the_limit_of_the_bus_is_refused(terminal: Terminal, suffix: str) -> None:
    said = terminal.busd("send", f"agent:a{suffix}", "hi", "--durable", "--ttl", "365d")
    assert said.code == 2
    assert "delivery.ttlSeconds is at most" in one_line(said)


def test_a_full_mailbox_is_to_be_tried_again(daemon_with: DaemonWith, lonely: Terminal) -> None:
    address = f"unix:{daemon_with({'mail.box_count': 1}).path}"
    args = ("send", "agent:full", "hi", "--durable", "--timeout", "2", "-a", address)
    assert lonely.busd(*args).code == 0
    said = lonely.busd(*args)
    assert said.code == 75
    assert "mail for agent:full is not kept: 1 (mail.box_count)" in one_line(said)
