"""`busd plugins`: what runs inside the bus as its operator sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.conftest import DaemonWith
from tests.daemons import open_daemon
from tests.plugin.sources import GREET


@pytest.mark.parametrize("args", [[], ["ls"]])
def test_the_plugins_are_a_table(terminal: Terminal, args: list[str]) -> None:
    said = terminal.busd("plugins", *args)
    assert (said.code, said.err) == (0, "")
    head, *rows = said.out.splitlines()
    assert head.split() == ["PLUGIN", "VERSION", "STATE", "FAULTS", "ORIGIN", "ABOUT"]
    [bub] = [row.split() for row in rows if row.startswith("bub ")]
    assert bub[2:4] == ["running", "0"]
    assert bub[4].endswith("plugins/bub")


@pytest.mark.parametrize("args", [["--json"], ["ls", "--json"]])
def test_the_plugins_are_json(terminal: Terminal, args: list[str]) -> None:
    said = terminal.busd("plugins", *args)
    assert (said.code, said.err, said.out.count("\n")) == (0, "", 1)
    assert "bub" in [each["name"] for each in json.loads(said.out)["plugins"]]


def test_show_tells_what_a_plugin_answers(terminal: Terminal) -> None:
    said = terminal.busd("plugins", "show", "bub")
    assert (said.code, said.err) == (0, "")
    facts = dict(line.split(maxsplit=1) for line in said.out.splitlines())
    assert "system:route" in facts["addresses"].split()
    assert "tg_message" in facts["types"].split()
    assert "agents.list" in facts["methods"].split()
    shown = json.loads(terminal.busd("plugins", "show", "bub", "--json").out)
    assert shown["name"] == "bub"


def test_a_plugin_nobody_knows_is_told(terminal: Terminal) -> None:
    said = terminal.busd("plugins", "show", "dance")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("busd: there is no plugin dance; this bus has agentiq, bridges, bub")


def test_a_bad_plugin_is_named_with_its_fault(tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "broken.py").write_text("raise RuntimeError('not\\x1b[2J today')\n")
    with open_daemon("uvloop", {"plugins.folders": [str(folder)]}) as daemon:
        daemon.is_blamed = True  # its log names the bad plugin as an error
        terminal = Terminal(tmp_path, f"unix:{daemon.path}")
        rows = terminal.busd("plugins").out.splitlines()
        [row] = [row.split() for row in rows if row.startswith("broken ")]
        assert row[2:4] == ["faulty", "1"]
        said = terminal.busd("plugins", "show", "broken")
        assert "not�[2J today" in said.out


def test_a_plugin_that_was_broken_since_is_one_row_and_show_says_why(tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "greet.py").write_text(GREET)
    with open_daemon("uvloop", {"plugins.folders": [str(folder)]}) as daemon:
        terminal = Terminal(tmp_path, f"unix:{daemon.path}")
        daemon.is_blamed = True  # its log has the traceback
        (folder / "greet.py").write_text("def f(:\n")
        assert terminal.busd("reload").code == 1
        rows = terminal.busd("plugins").out.splitlines()
        [row] = [row.split() for row in rows if row.startswith("greet ")]
        assert row[2:4] == ["outdated", "1"]
        said = terminal.busd("plugins", "show", "greet")
        facts = dict(line.split(maxsplit=1) for line in said.out.splitlines())
        assert facts["state"] == "outdated"
        assert facts["lastFault"].startswith("import failed: SyntaxError: ")


def test_two_plugins_of_one_name_are_both_shown(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "greet.py").write_text(GREET)
    folders = [str(tmp_path / name) for name in ("one", "two")]
    with open_daemon("uvloop", {"plugins.folders": folders}) as daemon:
        terminal = Terminal(tmp_path, f"unix:{daemon.path}")
        shown = [json.loads(line) for line in _lines(terminal, "show", "greet", "--json")]
        assert [each["state"] for each in shown] == ["running", "faulty"]
        assert "the name greet is taken by" in shown[1]["lastFault"]


def _lines(terminal: Terminal, *args: str) -> list[str]:
    return terminal.busd("plugins", *args).out.splitlines()


def test_a_disabled_plugin_is_named_as_such(daemon_with: DaemonWith, tmp_path: Path) -> None:
    daemon = daemon_with({"plugins.disabled": ["bub"]})
    said = Terminal(tmp_path, f"unix:{daemon.path}").busd("plugins", "show", "bub")
    assert dict(line.split(maxsplit=1) for line in said.out.splitlines())["state"] == "disabled"


@pytest.mark.parametrize(
    ("args", "problem"),
    [(["dance"], "No such command 'dance'"), (["show"], "Missing argument 'NAME'")],
)
def test_a_mistake_in_typing_is_explained(
    terminal: Terminal, args: list[str], problem: str
) -> None:
    said = terminal.busd("plugins", *args)
    assert (said.code, said.out) == (2, "")
    assert problem in said.err


def test_no_bus_is_told(lonely: Terminal) -> None:
    assert lonely.busd("plugins").code == 69
