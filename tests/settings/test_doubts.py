"""What is said but hardly meant is named, and keeps nobody from starting."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import msgspec
import pytest

import busd
from busd.plugin.host import PluginSettings
from busd.settings.config import Settings, default_settings, variables
from busd.settings.doubts import OTHER_VARIABLES, find_doubts
from busd_plugins.bub.settings import AgentsSettings
from tests.cli.terminal import Terminal
from tests.daemon.conftest import Reloading
from tests.daemons import Loop, open_daemon
from tests.wire.tls.authority import Authority

MISSPELT = "$BUSD_POLCY is ignored: there is no such setting"
SLOW_WORKERS = msgspec.structs.replace(default_settings(), agents=AgentsSettings(stop_seconds=20.0))


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("BUSD_")]:
        monkeypatch.delenv(name)


def doubts(settings: Settings | None = None) -> list[tuple[str, str]]:
    return [(each.says, each.fix) for each in find_doubts(settings or default_settings())]


@pytest.mark.parametrize(
    ("name", "says", "fix"),
    [
        ("BUSD_POLCY", MISSPELT, "did you mean BUSD_POLICY?"),
        (
            "BUSD_MAX_FRAME_BYTES",
            "$BUSD_MAX_FRAME_BYTES is ignored: there is no such setting",
            "did you mean BUSD_WIRE_MAX_FRAME_BYTES?",
        ),
        (
            "BUSD_TOKENFILE",
            "$BUSD_TOKENFILE is ignored: there is no such setting",
            "did you mean BUSD_TOKEN_FILE?",
        ),
        (
            "BUSD_GRANT_UID",
            "$BUSD_GRANT_UID is ignored: only a file can say grant.uid",
            "unset BUSD_GRANT_UID",
        ),
        (
            "BUSD_XYZZY",
            "$BUSD_XYZZY is ignored: there is no such setting",
            "unset BUSD_XYZZY, if it is meant for busd",
        ),
    ],
)
def test_a_variable_that_is_no_setting_is_named_but_not_its_value(
    monkeypatch: pytest.MonkeyPatch, name: str, says: str, fix: str
) -> None:
    monkeypatch.setenv(name, "swordfish")
    assert doubts() == [(says, fix)]


def test_settings_and_what_clients_and_workers_read_are_no_reason_to_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (*variables(), *OTHER_VARIABLES, "_BUSD_COMPLETE", "BUSDX"):
        monkeypatch.setenv(name, "x")
    assert doubts() == []


def test_every_variable_in_the_source_is_known() -> None:
    folder = Path(busd.__file__).parent
    files = [*folder.rglob("*.py"), *(folder.parent / "plugins").rglob("*.py")]
    named = {name for file in files for name in re.findall(r"\bBUSD_[A-Z_]+\b", file.read_text())}
    assert named - {"BUSD_"} <= {*variables(), *OTHER_VARIABLES}


def test_workers_that_may_take_longer_than_the_plugin_that_ends_them() -> None:
    [(says, fix)] = doubts(SLOW_WORKERS)
    assert says == (
        "agents.stop_seconds is 20 and plugins.stop_seconds only 10: "
        "a stopping bus would be gone before its workers"
    )
    assert fix == "set plugins.stop_seconds to more than 20"
    patient = PluginSettings(stop_seconds=21.0)
    assert doubts(msgspec.structs.replace(SLOW_WORKERS, plugins=patient)) == []
    keeping = AgentsSettings(stop_seconds=20.0, when_bus_stops="keep")
    assert doubts(msgspec.structs.replace(SLOW_WORKERS, agents=keeping)) == []
    disabled = PluginSettings(disabled=["bub"])
    assert doubts(msgspec.structs.replace(SLOW_WORKERS, plugins=disabled)) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('listen = ["tcp://0.0.0.0:1"]', "tcp://0.0.0.0:1: everybody on the network could read "),
        ('listen = ["tls://127.0.0.1:1"]', "tls://127.0.0.1:1: this bus has no certificate; see "),
        ('tls.certificate = "/nowhere.pem"', "tls.certificate: cannot read /nowhere.pem: No such "),
    ],
)
def test_config_check_and_the_doctor_find_what_the_bus_would_not_start_with(
    tmp_path: Path, lonely: Terminal, text: str, problem: str
) -> None:
    config = tmp_path / "busd.toml"
    config.write_text(text)
    refused = lonely.busd("serve", "--config", str(config))
    assert refused.err.startswith(f"busd: {problem}")
    assert lonely.busd("config", "check", "--config", str(config)) == refused
    said = lonely.busd("doctor", "--user", "--config", str(config))
    assert f"problem  configuration: {problem}" in said.out


def test_config_check_and_the_doctor_warn_of_a_doubtful_certificate(
    tmp_path: Path, lonely: Terminal
) -> None:
    files = Authority(tmp_path, "authority").issue("bus")
    Path(files.key).chmod(0o644)
    config = tmp_path / "busd.toml"
    config.write_text(f'tls.certificate = "{files.certificate}"\ntls.key = "{files.key}"\n')
    said = lonely.busd("config", "check", "--config", str(config))
    assert (said.code, said.out) == (0, f"ok: {config}\n")
    assert said.err.startswith(f"warning: tls.key: everybody can read {files.key}; ")
    said = lonely.busd("doctor", "--user", "--config", str(config))
    assert f"warning  certificate: tls.key: everybody can read {files.key}; " in said.out


def test_config_check_and_the_doctor_warn(tmp_path: Path, lonely: Terminal) -> None:
    lonely.environment |= {"XDG_CONFIG_HOME": str(tmp_path), "BUSD_POLCY": "open"}
    warned = f"{MISSPELT}; did you mean BUSD_POLICY?"
    said = lonely.busd("config", "check")
    assert said == (0, "ok: no file, only defaults\n", f"warning: {warned}\n")
    assert json.loads(lonely.busd("config", "check", "--json").out)["warnings"] == [warned]
    found = [
        json.loads(line) for line in lonely.busd("doctor", "--user", "--json").out.splitlines()
    ]
    fix = "did you mean BUSD_POLICY?"
    expected = {"item": "environment", "level": "warning", "says": MISSPELT, "fix": fix}
    assert expected in found


def test_a_bus_that_starts_warns(loop: Loop) -> None:
    with open_daemon(loop, {"agents.stop_seconds": 20}) as daemon:
        bus = Reloading(daemon)
        bus.ping()
        [line] = bus.log()
    assert (line["event"], line["level"]) == ("settings.doubtful", "warning")
    assert [(line["reason"], line["fix"])] == doubts(SLOW_WORKERS)
