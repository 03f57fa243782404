"""The pages of the documentation say what is: their tables are the code's, their samples work."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import busd
import busd.errors
from busd import SyncClient
from busd.bus.mail import MailLimits
from busd.bus.mail_state import TRANSITIONS
from busd.cli.main import cli
from busd.errors import RequestError
from busd.plugin.plugin import Plugin
from busd_plugins.bub import plugin as bub
from tests.daemons import PATIENCE_SECONDS, open_daemon
from tests.doc_tables import TABLES, commands, minus
from tests.pages import ROOT, rows_of, samples_of, section, text_of
from tests.plugin.sources import GREET

_LIMITED = ("box_", "identity_", "total_")


@pytest.mark.parametrize(("page", "title"), TABLES, ids=lambda each: each)
def test_a_table_is_what_the_code_has(page: str, title: str) -> None:
    _, expected = TABLES[page, title]
    assert rows_of(page, title) == expected(), "python -m tests.doc_tables writes it anew"


def test_the_methods_of_the_bundled_plugin_are_for_admins() -> None:
    assert all(method.admin for method in bub.methods.values())


def test_the_table_of_errors_names_every_rule() -> None:
    kinds = [
        kind
        for kind in vars(busd.errors).values()
        if isinstance(kind, type) and issubclass(kind, RequestError) and kind is not RequestError
    ]
    expected = {(minus(kind.code), f"`{kind.rule}`") for kind in kinds}
    assert {(code, rule) for code, rule, _ in rows_of("docs/protocol.md", "Errors")} == expected


def test_the_table_of_commands_has_every_verb() -> None:
    named = {cells[0].strip("`").split()[1] for cells in commands()}
    assert named == set(cli.commands)


def test_the_exit_codes_are_those_of_the_command_line() -> None:
    told = {cells[0]: cells[1] for cells in rows_of("docs/cli.md", "Exit codes")}
    assert told.pop("130") == "interrupted by Ctrl-C"
    assert told == dict(re.findall(r"(\d+) ([\w ]+?)[,.]", cli.epilog or ""))


def test_the_rules_of_plugins_are_decorators() -> None:
    named = [cells[0].strip("`") for cells in rows_of("docs/plugins.md", "Rules")]
    assert named == ["checks", "names_speakers", "checks_names", "keeps_mail"]
    assert all(callable(getattr(Plugin, name)) for name in named)


def test_the_errors_of_clients_are_exported() -> None:
    named = [cells[0].strip("`") for cells in rows_of("docs/client.md", "Errors")]
    assert all(issubclass(getattr(busd, name), busd.BusdError) for name in named)
    assert issubclass(busd.BusForbidden, busd.BusUnreachable)


def test_the_plugin_of_the_guide_is_the_one_that_is_tested() -> None:
    versioned = GREET.replace('Plugin("greet")', 'Plugin("greet", version="1.0")')
    assert versioned in section("docs/plugins.md", "Fifteen lines")


@pytest.mark.parametrize(
    "page", ["README.md", "docs/access.md", "docs/bridges.md", "docs/bub-peers.md"]
)
def test_the_settings_of_a_page_are_valid(tmp_path: Path, page: str) -> None:
    samples = samples_of(text_of(page), "toml")
    assert samples
    for _, text in samples:
        config = tmp_path / "busd.toml"
        config.write_text(text)
        command = [sys.executable, "-m", "busd", "config", "show", "--config", str(config)]
        shown = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
        assert shown.returncode == 0, shown.stderr


def test_the_examples_of_the_test_kit_are_true() -> None:
    examples = [text for _, text in samples_of(text_of("docs/testing.md"), "python")]
    assert len(examples) == 2
    exec(compile("".join(examples), "docs/testing.md", "exec"), {})


def test_the_states_of_mail_are_those_of_the_code() -> None:
    told = {
        (state, cells[1]): cells[2].strip("`")
        for cells in rows_of("docs/delivery.md", "States")
        for state in re.findall(r"`(\w+)`", cells[0])
    }
    assert told == {(state.value, event): to.value for (state, event), to in TRANSITIONS.items()}


def test_the_limits_of_mail_are_settings() -> None:
    cells = [row[0] for row in rows_of("docs/delivery.md", "Limits and refusals")]
    named = set(re.findall(r"`mail\.(\w+)`", " ".join(cells))) - {"busy", "failed"}
    assert named <= set(MailLimits.__struct_fields__)
    limits = {name for name in MailLimits.__struct_fields__ if name.startswith(_LIMITED)}
    assert named == limits


def test_the_worker_of_the_page_on_delivery_counts_each_message_once(tmp_path: Path) -> None:
    [(_, program)] = samples_of(text_of("docs/delivery.md"), "python")
    (tmp_path / "orders.py").write_text(program)
    with open_daemon("uvloop") as daemon:
        environment = os.environ | {"BUSD_ADDRESS": f"unix:{daemon.path}", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "orders.py"]
        with (
            SyncClient("ann", address=f"unix:{daemon.path}") as ann,
            subprocess.Popen(command, cwd=tmp_path, env=environment) as worker,
        ):
            order = {"type": "order", "pizza": "funghi"}
            ann.send("agent:orders", order, durable=True, message_id="first")  # may be kept
            for message_id in ("first", "second", "second"):  # not durable: delivered each time
                while not ann.send("agent:orders", order, message_id=message_id).acks:
                    pass
            worker.terminate()
    with closing(sqlite3.connect(tmp_path / "orders.db")) as db:
        assert db.execute("SELECT count(*) FROM sold").fetchone() == (2,)
