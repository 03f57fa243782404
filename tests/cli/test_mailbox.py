"""`busd mailbox` and `busd dlq`: what they print, what they ask, and what they refuse."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from busd import Refuse, SyncClient
from busd.client.sync import SyncIncoming
from tests.cli.conftest import Join
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.cli.terminal import Said, Terminal
from tests.conftest import DaemonWith


def rows(said: Said) -> list[list[str]]:
    """Return the cells of a table, without its head."""
    assert said.code == 0, said.err
    return [re.split(r" {2,}", line) for line in said.out.splitlines()[1:]]


@pytest.fixture
def ann(join: Join) -> SyncClient:
    return join("ann")


@pytest.fixture
def away(suffix: str) -> str:
    """An address that nobody answers for."""
    return f"agent:away{suffix}"


@pytest.fixture
def letters(ann: SyncClient, join: Join) -> list[dict[str, Any]]:
    """Three dead letters, whose addressee now accepts everything."""
    bob = join("agent:bob")
    is_willing = False

    @bob.on()
    def refuse(message: SyncIncoming) -> None:
        if not is_willing:
            raise Refuse("no\x1b[31m way")

    for number in range(3):
        params = {"to": bob.client_id, "messageId": f"{bob.client_id}/{number}", "payload": {}}
        _notify(ann, params | {"delivery": {"durable": True}})
    found: list[dict[str, Any]] = []
    while len(found) < 3:
        found = ann.call("bus.listDead", {"to": bob.client_id})["letters"]
    is_willing = True
    return found


def _notify(client: SyncClient, params: dict[str, Any]) -> None:
    """Send a message that nobody waits for, so that its refusal makes a dead letter."""
    from busd.rpc.envelope import Notification, encode

    async def send() -> None:
        line = client._client.caller.line  # there is no such method for programs
        assert line is not None
        line.connection.send(encode(Notification("sendMessage", params)))

    client._portal.call(send)
    client.ping()


# busd mailbox


def test_ls_shows_what_waits_and_who_gets_it(
    terminal: Terminal, ann: SyncClient, away: str
) -> None:
    for _ in range(2):
        ann.send(away, {"a": 1}, durable=True)
    [row] = rows(terminal.busd("mailbox", "ls", away))
    assert row[:3] == [away, "2", "14"]
    assert row[3].endswith("s ago")
    assert row[4:] == ["0", "-"]
    found = json.loads(terminal.busd("mailbox", "ls", away, "--json").out)
    assert (found["address"], found["count"], found["answeredBy"]) == (away, 2, [])


def test_a_limit_says_that_there_is_more(terminal: Terminal, ann: SyncClient, away: str) -> None:
    for number in range(3):
        ann.send(f"{away}.{number}", {}, durable=True)
    said = terminal.busd("mailbox", "ls", away, "-n", "2")
    assert [row[0] for row in rows(said)] == [f"{away}.0", f"{away}.1"]
    assert said.err == "there are more; --limit shows them\n"
    assert terminal.busd("mailbox", "ls", away, "-n", "3").err == ""


def test_show_shows_each_message(terminal: Terminal, ann: SyncClient, away: str) -> None:
    ids = [ann.send(away, {"n": n}, durable=True).message_id for n in range(2)]
    said = terminal.busd("mailbox", "show", away)
    found = rows(said)
    assert [row[2:6] for row in found] == [[ann.client_id, each, "0", "kept"] for each in ids]
    assert '{"n":1}' not in said.out
    said = terminal.busd("mailbox", "show", away, "--payload", "--after", found[0][0])
    assert said.out.splitlines()[-1] == f'{found[1][0]}: {{"n":1}}'
    mail = json.loads(terminal.busd("mailbox", "show", away, "-n", "1", "--json").out)
    assert (mail["messageId"], mail["state"]) == (ids[0], "kept")


def test_an_empty_mailbox_says_so(terminal: Terminal, away: str) -> None:
    assert terminal.busd("mailbox", "show", away) == (0, "", f"there is no mail for {away}\n")


def test_a_purge_needs_yes_where_nobody_can_be_asked(
    terminal: Terminal, ann: SyncClient, away: str
) -> None:
    ann.send(away, {}, durable=True)
    said = terminal.busd("mailbox", "purge", away)
    assert said.code == 2
    assert "repeat it with --yes" in said.err
    assert terminal.busd("mailbox", "purge", away, "--yes") == (0, "", "1 message deleted\n")
    said = terminal.busd("mailbox", "purge", away, "--yes")
    assert said == (1, "", f"busd: there is no mail for {away}\n")


@pytest.mark.parametrize(("answer", "left"), [("n", 1), ("y", 0)])
def test_a_purge_asks_on_a_terminal(
    terminal: Terminal, ann: SyncClient, away: str, answer: str, left: int
) -> None:
    ann.send(away, {}, durable=True)
    with PseudoTerminal(terminal, "mailbox", "purge", away) as asked:
        asked.see(f"Delete all mail for {away}? [y/N]")
        asked.type(answer)
        assert asked.end() == (0 if answer == "y" else 1)
    assert len(ann.call("bus.listMailboxes", {"prefix": away})["mailboxes"]) == left


@pytest.mark.parametrize("verb", ["show", "purge"])
def test_what_is_no_address_is_a_mistake_in_typing(terminal: Terminal, verb: str) -> None:
    extra = ["--yes"] if verb == "purge" else []
    said = terminal.busd("mailbox", verb, "agent:*", *extra)
    assert said.code == 2
    assert said.err.startswith("busd: malformed address")


# busd dlq


def test_dlq_ls_shows_why(terminal: Terminal, letters: list[Any], ann: SyncClient) -> None:
    to = letters[0]["to"]
    said = terminal.busd("dlq", "ls", "--to", to, "--from", ann.client_id)
    assert [row[3] for row in rows(said)] == [to] * 3
    assert {row[-1] for row in rows(said)} == {"no\ufffd[31m way"}
    assert rows(terminal.busd("dlq", "ls", "--to", to, "--from", "nobody*")) == []
    shown = terminal.busd("dlq", "ls", "--to", f"{to}*", "-n", "2", "--json")
    assert [json.loads(line)["id"] for line in shown.out.splitlines()] == [
        each["id"] for each in letters[:2]
    ]


def test_dlq_show_shows_the_payload(terminal: Terminal, letters: list[Any]) -> None:
    number = str(letters[0]["id"])
    said = terminal.busd("dlq", "show", number)
    assert said.out.splitlines()[-1] == "{}"
    assert json.loads(terminal.busd("dlq", "show", number, "--json").out)["reason"].endswith("way")


def test_dlq_retry_reports_each_letter(terminal: Terminal, letters: list[Any]) -> None:
    number = letters[0]["id"]
    said = terminal.busd("dlq", "retry", str(number), "4611686018427387904")
    assert said.code == 1
    assert said.out.startswith(f"{number}  {letters[0]['to']}  {letters[0]['messageId']}  is now ")
    assert said.err.splitlines() == [
        "there is no dead letter 4611686018427387904",
        "1 dead letter retried",
    ]
    said = terminal.busd("dlq", "retry", "--to", letters[0]["to"], "--json")
    assert (said.code, said.err) == (0, "2 dead letters retried\n")
    assert [json.loads(line)["id"] for line in said.out.splitlines()] == [
        each["id"] for each in letters[1:]
    ]


def test_dlq_drop_asks_unless_it_is_told_which(terminal: Terminal, letters: list[Any]) -> None:
    to = letters[0]["to"]
    assert terminal.busd("dlq", "drop", str(letters[0]["id"])).err == "1 dead letter deleted\n"
    said = terminal.busd("dlq", "drop", "--to", to)
    assert said.code == 2
    assert "repeat it with --yes" in said.err
    said = terminal.busd("dlq", "drop", "--to", to, "--yes", "--json")
    assert json.loads(said.out) == {"dropped": 2, "missing": []}


@pytest.mark.parametrize("verb", ["retry", "drop"])
@pytest.mark.parametrize("args", [[], ["1", "--all"], ["--all", "--to", "x"], ["1", "--from", "x"]])
def test_one_way_to_choose_letters_is_needed(
    lonely: Terminal, address: str, verb: str, args: list[str]
) -> None:
    said = lonely.busd("dlq", verb, *args, "-a", address)
    assert said.code == 2
    assert "give IDs, or --all, or --from and --to" in said.err


def test_thousands_of_dead_letters_are_dropped_in_portions(
    daemon_with: DaemonWith, lonely: Terminal
) -> None:
    address = f"unix:{daemon_with({'mail.max_attempts': 1}).path}"
    with SyncClient("ann", address=address) as ann:
        _make_expired(ann, 1_200)
        said = lonely.busd("dlq", "retry", "--all", "-a", address)
        assert len(said.out.splitlines()) == 1_200
        assert said.err == "500 so far …\n1000 so far …\n1200 dead letters retried\n"
        assert lonely.busd("mailbox", "purge", "agent:x", "--yes", "-a", address).code == 0
        _make_expired(ann, 1_200)
        said = lonely.busd("dlq", "drop", "--all", "--yes", "-a", address)
        assert said.err == "500 so far …\n1000 so far …\n1200 dead letters deleted\n"


def _make_expired(ann: SyncClient, count: int) -> None:
    """Send messages that expire at once, and wait until they are dead letters."""
    for _ in range(count):
        params = {"to": "agent:x", "payload": {}}
        _notify(ann, params | {"delivery": {"durable": True, "ttlSeconds": 0.001}})
    while ann.call("bus.about")["mail"]["dead"] < count:
        pass
