"""`busd explain` says what the bus would say, with an exit code for scripts."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bus.access.conftest import Guarded
from tests.bus.access.guarded import GUEST, join_with
from tests.cli.terminal import Terminal


@pytest.fixture
def terminal(guarded: Guarded, tmp_path: Path) -> Terminal:
    return Terminal(tmp_path, f"unix:{guarded.daemon.path}")


def test_a_refused_message_names_the_rule_that_explain_names(
    terminal: Terminal, guarded: Guarded, opened: ExitStack
) -> None:
    peer = join_with(guarded.daemon, "tcp", guarded.tokens["limited"], "guest:1", opened)
    about = ("--token", "limited", "--client-id", "guest:1")
    for sender, to in [("agent:bob", "desk:1"), ("guest:1", "vault:1"), ("agent:bob", "vault:1")]:
        message = {"from": sender, "to": to, "payload": {}}
        rule = peer.answer_to(peer.request("sendMessage", message))["error"]["data"]["rule"]
        said = terminal.busd("explain", "--from", sender, "--to", to, *about)
        assert said.code == 77
        assert said.out.startswith(f"refused by {rule}: ")
        said = terminal.busd("explain", "--from", sender, "--to", to, *about, "--json")
        assert said.code == 77
        assert json.loads(said.out)["rule"] == rule


def test_an_allowed_message_is_allowed_by_a_rule(terminal: Terminal) -> None:
    message = ("--from", "guest:1", "--to", "desk:1")
    said = terminal.busd("explain", *message, "--uid", str(GUEST))
    assert (said.code, said.out) == (0, "allowed by grant.guests.send_to: desk:* is granted\n")
    said = terminal.busd("explain", *message)  # of oneself
    allowed, known_by = said.out.splitlines()
    assert (said.code, allowed) == (0, "allowed by grant.owner.send_to: * is granted")
    assert known_by.startswith(f"you are known by uid {os.geteuid()} (Unix socket)")
    said = terminal.busd("explain", *message, "--type", "tg_message", "--token", "limited")
    assert (said.code, said.out) == (0, "allowed by grant.limited.send_to: desk:* is granted\n")


def test_a_token_that_is_not_known_is_not_let_in(terminal: Terminal) -> None:
    said = terminal.busd("explain", "--from", "a", "--to", "b", "--token", "unknown")
    assert (said.code, said.out) == (77, "refused by authentication: there is no token 'unknown'\n")


def test_a_user_without_a_grant_is_told_so(terminal: Terminal) -> None:
    said = terminal.busd("explain", "--from", "a", "--to", "b", "--uid", "4711")
    assert (said.code, said.out) == (
        77,
        "refused by authentication: there is no grant for uid 4711\n",
    )


def test_who_is_no_admin_may_ask_only_about_itself(
    guarded: Guarded, tmp_path: Path, opened: ExitStack
) -> None:
    address = f"tcp://:{guarded.tokens['plain']}@127.0.0.1:{guarded.daemon.port}"
    terminal = Terminal(tmp_path, address)
    said = terminal.busd("explain", "--from", "a", "--to", "b")
    allowed, known_by = said.out.splitlines()
    assert (said.code, allowed) == (0, "allowed by grant.token plain.send_to: * is granted")
    assert known_by == "you are known by token plain"
    said = terminal.busd("explain", "--from", "a", "--to", "b", "--client-id", "c")
    assert said.code == 77
    assert said.out.startswith("refused by grant.token plain.speak_as: ")
    said = terminal.busd("explain", "--from", "a", "--to", "b", "--uid", "0")
    assert (said.code, said.out) == (77, "")
    assert "is no admin here" in said.err
