"""Who may send which type: asked of plugins, in `strict`, about those who cannot be anybody."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bus.access.guarded import new_token, write_grants
from tests.cli.terminal import Terminal
from tests.daemons import Daemon, Loop, open_daemon
from tests.plugin.conftest import write_plugin
from tests.wire_peers import LinePeer, Peer, open_tcp

CHECKS = '''"""Checks: cats may only meow."""

from busd import Plugin

plugin = Plugin("zoo")


@plugin.checks
def check(sender: str, type_name: str) -> str | None:
    if type_name == "crash":
        raise ValueError("secret")
    if sender.startswith("cat:") and type_name != "meow":
        return f"cats may not {type_name}"
    return None
'''
GRANTS = [
    {"name": "cat", "token": "cat", "client_ids": ["cat:*"], "speak_as": ["client-*", "dog:*"]},
    {"name": "boss", "token": "boss", "speak_as": ["*"]},
]


@pytest.fixture(scope="module")
def zoo(loop: Loop) -> Iterator[Daemon]:
    folder = Path(tempfile.mkdtemp(prefix="busd-test-"))
    write_plugin(folder / "plugins", "zoo.py", CHECKS)
    write_grants(folder, GRANTS)
    settings = {
        "policy": "strict",
        "plugins.folders": [str(folder / "plugins")],
        "plugins.disabled": ["bub"],
    }
    with open_daemon(loop, settings, folder=folder) as daemon:
        for name in ("cat", "boss"):
            (folder / name).write_text(new_token(daemon, name))
        daemon.is_blamed = True
        yield daemon


def join_by_token(zoo: Daemon, token: str, name: str, opened: ExitStack) -> Peer:
    peer = LinePeer(open_tcp(zoo.port))
    opened.callback(peer.close)
    shown = (zoo.folder / token).read_text()
    peer.call("initialize", {"clientId": name, "auth": {"token": shown}})
    return peer


def test_a_sender_that_may_not_send_a_type_is_refused_by_the_rule_of_the_plugin(
    zoo: Daemon, opened: ExitStack
) -> None:
    cat = join_by_token(zoo, "cat", "cat:1", opened)
    assert cat.answer_to(cat.send_message("x", {"type": "meow"}))["result"]["accepted"]
    error = cat.answer_to(cat.send_message("x", {"type": "bark"}))["error"]
    assert (error["code"], error["message"]) == (-32602, "cats may not bark")
    assert error["data"]["rule"] == "type.zoo"


def test_a_made_up_sender_changes_nothing_about_what_a_peer_may_send(
    zoo: Daemon, opened: ExitStack
) -> None:
    cat = join_by_token(zoo, "cat", "cat:2", opened)
    made_up = {"from": "client-0123456789abcdef"}
    assert "result" in cat.answer_to(cat.send_message("x", {"type": "meow"}, **made_up))
    error = cat.answer_to(cat.send_message("x", {"type": "bark"}, **made_up))["error"]
    assert (error["message"], error["data"]["rule"]) == ("cats may not bark", "type.zoo")


def test_a_peer_may_send_what_the_one_it_is_granted_to_speak_as_may(
    zoo: Daemon, opened: ExitStack
) -> None:
    cat = join_by_token(zoo, "cat", "cat:3", opened)
    assert "result" in cat.answer_to(cat.send_message("x", {"type": "bark"}, **{"from": "dog:1"}))


def test_whoever_may_speak_as_anybody_is_not_asked(zoo: Daemon, opened: ExitStack) -> None:
    boss = join_by_token(zoo, "boss", "cat:boss", opened)
    assert boss.answer_to(boss.send_message("x", {"type": "bark"}))["result"]["accepted"]


def test_a_check_that_fails_lets_nothing_through(zoo: Daemon, opened: ExitStack) -> None:
    cat = join_by_token(zoo, "cat", "cat:1", opened)
    error = cat.answer_to(cat.send_message("x", {"type": "crash"}))["error"]
    assert (error["message"], error["data"]["rule"]) == ("plugin zoo failed", "type.zoo")


def test_explain_asks_the_same_table(zoo: Daemon, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, f"unix:{zoo.path}")
    about = ("explain", "--from", "cat:1", "--to", "x", "--token", "cat", "--type")
    said = terminal.busd(*about, "bark")
    assert (said.code, said.out) == (77, "refused by type.zoo: cats may not bark\n")
    made_up = ("explain", "--from", "client-1", "--client-id", "cat:1", "--to", "x")
    said = terminal.busd(*made_up, "--token", "cat", "--type", "bark")
    assert (said.code, said.out) == (77, "refused by type.zoo: cats may not bark\n")
    assert terminal.busd(*about, "meow").code == 0
    said = terminal.busd("explain", "--from", "cat:1", "--to", "x", "--type", "bark")
    assert said.code == 0  # the owner


def test_only_an_admin_sees_the_plugins(zoo: Daemon, opened: ExitStack) -> None:
    cat = join_by_token(zoo, "cat", "cat:1", opened)
    error = cat.answer_to(cat.request("bus.listPlugins", {}))["error"]
    assert error["data"]["rule"] == "grant.admin"
