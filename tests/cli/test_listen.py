"""`busd listen`: what is printed, how it is acked, and how it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from busd import SyncClient
from tests.cli.conftest import Join
from tests.cli.terminal import Running, Terminal


def start_listening(terminal: Terminal, *args: str) -> Running:
    """Start a listener and wait until it is there; its name is in `heading`."""
    running = terminal.start("listen", *args)
    heading = running.stderr.readline()
    assert heading.startswith("listening as "), heading + running.stderr.read()
    return running


def test_a_message_is_printed_and_acked(terminal: Terminal, join: Join, suffix: str) -> None:
    ann, name = join("ann"), f"agent:bob{suffix}"
    with start_listening(terminal, name) as running:
        [ack] = ann.send(name, {"type": "tg_message", "content": {"text": "hällo\nthere"}}).acks
        assert (ack.success, ack.client_id) == (True, name)
        assert ack.read()["type"] == "general_response"
        assert running.stdout.readline() == f"{ann.client_id} → {name}  hällo\n"
        assert running.stdout.readline() == "there\n"


def test_count_stops_after_so_many(terminal: Terminal, join: Join, suffix: str) -> None:
    ann, name = join("ann"), f"agent:bob{suffix}"
    with start_listening(terminal, name, "--count", "3") as running:
        for number in range(3):
            receipt = ann.send(name, {"content": {"text": str(number)}})
            assert receipt.acks[0].success  # the last one, too
        said = running.end()
    assert (said.code, said.err) == (0, "")
    assert said.out == "".join(f"{ann.client_id} → {name}  {number}\n" for number in range(3))


def test_json_is_one_message_a_line(terminal: Terminal, join: Join, suffix: str) -> None:
    ann, name = join("ann"), f"agent:bob{suffix}"
    payloads: list[Any] = [{"type": "x"}, Raw(b'{\n"n":1,\r\n"t":"\xc2\x9b"}')]
    with start_listening(terminal, name, "--json", "-n", "2") as running:
        ids = [ann.send(name, payload).message_id for payload in payloads]
        said = running.end()
    assert said.code == 0
    lines = said.out.splitlines()
    assert all(line.isprintable() for line in lines)
    sent = {"from": ann.client_id, "to": name}
    assert [json.loads(line) for line in lines] == [
        {**sent, "messageId": ids[0], "payload": {"type": "x"}},
        {**sent, "messageId": ids[1], "payload": {"n": 1, "t": "\u009b"}},
    ]


def test_several_patterns_are_listened_to(terminal: Terminal, join: Join, suffix: str) -> None:
    ann = join("ann")
    with terminal.start("listen", f"a:*{suffix}", f"b{suffix}", "--count", "2") as running:
        assert running.stderr.readline().startswith("listening as cli:")
        for to in (f"a:1{suffix}", f"b{suffix}"):
            assert ann.send(to, {"content": {"text": to}}).acks[0].success
        assert running.end().code == 0


def test_a_plain_address_is_the_name_of_the_listener(
    terminal: Terminal, join: Join, suffix: str
) -> None:
    ann, name = join("ann"), f"agent:bob{suffix}"
    with terminal.start("listen", name, f"b:*{suffix}") as running:
        assert running.stderr.readline() == f"listening as {name}; Ctrl-C stops\n"
        [it] = [each for each in ann.status()["connections"] if each["clientId"] == name]
        assert it["subscriptions"] == [name, f"b:*{suffix}"]
        assert it["clientInfo"]["name"] == "busd command line"


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        ({"content": {"text": "a\x1b[2Jb\x07c\x00d\x7f"}}, "a�[2Jb�c�d�"),
        ({"content": {"text": "a\u009b1mb\u202ec\u200bd"}}, "a�1mb�c�d"),
        ({"content": {"text": "tab\there"}}, "tab\there"),
        ({"content": {"text": 7}}, '{"content":{"text":7}}'),
        ({"content": "text"}, '{"content":"text"}'),
        ({"content": []}, '{"content":[]}'),
        ({}, "{}"),
        (Raw(b'{"content":1e400}'), '{"content":1e400}'),
        (Raw(b'{"content":"\xc2\x9b"}'), '{"content":"�"}'),
    ],
    ids=["escapes", "unicode", "tab", "number", "string", "list", "none", "huge", "c1"],
)
def test_whatever_strangers_send_is_shown_harmlessly(
    terminal: Terminal, join: Join, suffix: str, payload: Any, shown: str
) -> None:
    ann, name = join("ann"), f"agent:bob{suffix}"
    with start_listening(terminal, name, "--count", "1") as running:
        assert ann.send(name, payload).acks[0].success
        said = running.end()
    assert (said.code, said.err) == (0, "")
    assert said.out == f"{ann.client_id} → {name}  {shown}\n"


def test_a_terminal_that_knows_no_arrow_gets_a_question_mark(
    terminal: Terminal, join: Join, suffix: str
) -> None:
    terminal.environment["PYTHONIOENCODING"] = "latin-1"
    ann, name = join("ann"), f"agent:bob{suffix}"
    with start_listening(terminal, name, "--count", "1") as running:
        assert ann.send(name, {"content": {"text": "€"}}).acks[0].success
        said = running.end()
    assert (said.code, said.out) == (0, f"{ann.client_id} ? {name}  ?\n")


def test_a_reader_that_has_seen_enough_ends_it_quietly(
    terminal: Terminal, join: Join, suffix: str
) -> None:
    """What happens in `busd listen … | head -1`."""
    ann, name = join("ann"), f"agent:bob{suffix}"
    with start_listening(terminal, name) as running:
        ann.send(name, {"content": {"text": "first"}})
        assert running.stdout.readline().endswith("first\n")
        running.stdout.close()
        ann.send(name, {"content": {"text": "second"}})
        assert running.process.wait(30) == 0
        assert running.stderr.read() == ""


def test_ctrl_c_ends_it_without_a_traceback(terminal: Terminal, suffix: str) -> None:
    with start_listening(terminal, f"agent:bob{suffix}") as running:
        assert running.interrupt() == (130, "", "\n")  # below the ^C


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ([], "Missing argument 'PATTERN…'"),
        (["two words"], "malformed address"),
        (["a:*", "two words"], "malformed pattern"),
        (["a", "--count", "0"], "0 is not in the range"),
    ],
)
def test_a_mistake_in_typing_is_explained(
    terminal: Terminal, args: list[str], problem: str
) -> None:
    said = terminal.busd("listen", *args)
    assert (said.code, said.out) == (2, "")
    assert problem in said.err
    assert "Traceback" not in said.err


def test_the_listener_leaves_the_bus_when_it_ends(
    terminal: Terminal, bob: SyncClient, suffix: str
) -> None:
    name = f"agent:cat{suffix}"
    with start_listening(terminal, name) as running:
        running.interrupt()
    assert name not in [each["clientId"] for each in bob.status()["connections"]]
