"""`busd doctor` finds what is wrong with a set-up and says how to mend it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from busd import __version__
from busd.cli.doctor import doctor
from busd.finding import Finding
from busd.ops import doctor as checks
from busd.ops.doctor_bus import check_socket
from busd.ops.doctor_units import check_service, check_unit_state
from busd.ops.install import Layout, find_layout, install
from busd.wire.bus_address import BusAddress
from tests.conftest import DaemonWith


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """The places of a user who has nothing yet."""
    for name in ("CONFIG_HOME", "STATE_HOME", "RUNTIME_DIR"):
        monkeypatch.setenv(f"XDG_{name}", str(tmp_path / name.lower()))
    for name in ("BUSD_ADDRESS", "BUB_BUS_URL", "RUNTIME_DIRECTORY", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    return find_layout("user")


def found(findings: Iterable[Finding]) -> list[tuple[str, str, str]]:
    """Return all but what is fine."""
    return [(each.level, each.says, each.fix) for each in findings if each.level != "ok"]


def test_a_set_up_without_a_bus_has_problems(layout: Layout) -> None:
    done = CliRunner().invoke(doctor, ["--user", "--json"])

    findings = [json.loads(line) for line in done.stdout.splitlines()]
    problems = [each for each in findings if each["level"] == "problem"]
    assert done.exit_code == 1
    assert {each["item"] for each in problems} <= {"socket", "bus"}
    assert f'no bus at unix:{layout.socket}; start one with "busd serve"' in [
        each["says"] for each in problems
    ]
    assert all(each["fix"] for each in findings if each["level"] != "ok")


def test_a_running_bus_has_none(layout: Layout, daemon_with: DaemonWith, tmp_path: Path) -> None:
    daemon = daemon_with({})
    unix, tcp = f"unix:{daemon.path}", f"tcp://127.0.0.1:{daemon.port}"
    config = tmp_path / "busd.toml"
    config.write_text(f"listen = {json.dumps([unix, tcp])}\n")

    words = ["--user", "--config", str(config), "--address", unix]
    done = CliRunner().invoke(doctor, words)

    assert done.exit_code == 0, done.stdout
    assert f"ok       socket: {tcp} is open\n" in done.stdout
    assert f", version {__version__}\n" in done.stdout


def test_a_wrong_setting_is_named(layout: Layout) -> None:
    install(layout, ["/bin/busd"])
    layout.config.write_text("loopp = 'trio'\n")

    done = CliRunner().invoke(doctor, ["--user"])

    assert done.exit_code == 1
    assert "unknown setting 'loopp'; did you mean 'loop'?\n" in done.stdout
    assert f"→ edit {layout.config}\n" in done.stdout


def test_the_file_that_a_variable_names_is_checked(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "named.toml"
    file.write_text("policy = 'open'\n")
    monkeypatch.setenv("BUSD_CONFIG", str(file))
    said = [each.says for each in checks.examine(layout, None, None)]
    assert f"{file} is valid" in said


def test_settings_that_others_can_change_are_a_problem(layout: Layout) -> None:
    install(layout, ["/bin/busd"])
    path = layout.config
    assert found(checks.check_config(layout, path)) == []

    path.chmod(0o666)
    assert found(checks.check_config(layout, path)) == [
        ("problem", f"{path} can be changed by others (mode 0666)", f"chmod go-w {path}")
    ]


def test_settings_that_the_service_cannot_read_are_a_problem(layout: Layout) -> None:
    install(layout, ["/bin/busd"])
    path = layout.config
    words = f"the service cannot read {path}: it runs as a user of its own"

    findings = found(checks.check_config(find_layout("system"), path))

    assert findings == [("problem", words, f"chmod o+r {path}")]


def test_a_state_directory_that_others_can_write_is_a_problem(layout: Layout) -> None:
    layout.state.mkdir(parents=True)
    layout.state.chmod(0o777)
    (level, says, fix), *_ = found(checks.check_state(layout, layout.state))
    assert level == "problem"
    assert says.endswith(f"everybody may write {layout.state}")
    assert fix == f"chmod go-w {layout.state}"


def test_a_state_directory_that_others_can_look_into_is_a_warning(layout: Layout) -> None:
    layout.state.mkdir(parents=True)
    layout.state.chmod(0o755)

    words = f"others may look into {layout.state} (mode 0755)"
    assert found(checks.check_state(layout, layout.state)) == [
        ("warning", words, f"chmod 0700 {layout.state}")
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_state_directory_of_somebody_else_is_a_problem(layout: Layout) -> None:
    layout.state.mkdir(parents=True)
    os.chown(layout.state, 12345, 12345)

    words = f"{layout.state} belongs to uid 12345, not to you"
    assert found(checks.check_state(layout, layout.state)) == [
        ("problem", words, f"chown -R 0 {layout.state}")
    ]


def test_a_file_limit_below_the_connections_is_a_warning() -> None:
    (level, says, fix), *_ = found(checks.check_file_limit(10**9))

    assert level == "warning"
    assert "1000000000 connections configured" in says
    assert "LimitNOFILE=" in fix


def test_a_socket_of_a_bus_that_is_no_more_is_a_problem(layout: Layout) -> None:
    layout.socket.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(layout.socket))
    address = BusAddress("unix", str(layout.socket))

    has_systemd = Path("/run/systemd/system").is_dir()
    fix = "systemctl --user start busd.socket, or busd serve" if has_systemd else "busd serve"
    assert found(check_socket(layout, address)) == [
        ("problem", f"nobody answers at {address}: Connection refused", fix)
    ]


def test_a_socket_that_others_can_use_is_a_warning(layout: Layout, opened: ExitStack) -> None:
    layout.socket.parent.mkdir(parents=True)
    sock = opened.enter_context(socket.socket(socket.AF_UNIX))
    sock.bind(str(layout.socket))
    sock.listen()
    layout.socket.chmod(0o666)
    address = BusAddress("unix", str(layout.socket))

    words = f"others may connect to {layout.socket} (mode 0666)"
    assert found(check_socket(layout, address)) == [
        ("warning", words, f"chmod 0600 {layout.socket}")
    ]


@pytest.mark.parametrize(
    ("facts", "level", "says"),
    [
        ({"ActiveState": "active", "SubState": "running"}, "ok", "active (running)"),
        ({"ActiveState": "inactive", "SubState": "dead"}, "problem", "inactive (dead)"),
        (
            {"ActiveState": "failed", "Result": "watchdog", "ExecMainStatus": "6"},
            "problem",
            "failed (watchdog, exit code 6)",
        ),
        (
            {"ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": "78"},
            "problem",
            "failed: bad configuration",
        ),
    ],
)
def test_the_state_of_the_service_is_judged(
    facts: dict[str, str], level: str, says: str, layout: Layout
) -> None:
    units = {"busd.service": facts, "busd.socket": {}}
    (finding,) = check_unit_state(layout, "busd.service", facts, units)

    assert (finding.level, finding.says) == (level, says)
    assert bool(finding.fix) == (level != "ok")


def test_a_service_that_waits_for_its_first_client_is_fine(layout: Layout) -> None:
    facts = {"ActiveState": "inactive", "SubState": "dead"}
    units = {"busd.service": facts, "busd.socket": {"ActiveState": "active"}}

    (finding,) = check_unit_state(layout, "busd.service", facts, units)
    assert finding.says == "inactive (dead): starts with the first client"


def test_a_unit_whose_program_is_gone_is_a_problem() -> None:
    facts = {"ExecStart": "{ path=/gone/busd ; argv[]=/gone/busd serve ; }", "LimitNOFILE": "512"}

    assert found(check_service(facts, 20_000)) == [
        (
            "problem",
            "the unit starts /gone/busd, which is not there",
            "busd install, with the busd that is",
        ),
        (
            "warning",
            "LimitNOFILE=512 is less than wire.max_connections = 20000 needs",
            "LimitNOFILE=20100 in a drop-in",
        ),
    ]


def test_a_port_that_the_bus_chooses_is_not_looked_for(layout: Layout, tmp_path: Path) -> None:
    config = tmp_path / "busd.toml"
    config.write_text(f'listen = ["unix:{tmp_path}/bus.sock", "tcp://127.0.0.1:0"]\n')
    findings = checks.examine(layout, config, None)
    said = [each.says for each in findings if each.item == "socket"]
    assert said == [f"nobody answers at unix:{tmp_path}/bus.sock: No such file or directory"]


def test_a_token_that_others_may_read_is_a_problem(layout: Layout) -> None:
    layout.state.mkdir(mode=0o700, parents=True)
    token = layout.state / "token"
    token.write_text("secret")
    token.chmod(0o644)
    [(level, says, fix)] = found(checks.check_state(layout, layout.state))
    assert level == "problem"
    assert says.startswith(f"{token} is not for its owner alone (mode 0644): ")
    assert fix == f"chmod 0600 {token}, or rm {token}"
    token.chmod(0o600)
    assert not found(checks.check_state(layout, layout.state))
