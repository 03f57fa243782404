"""`busd install` writes units and a busd.toml, and never over what somebody changed."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from busd import __version__
from busd.cli.install import install as install_command
from busd.errors import BusdError
from busd.ops.install import (
    Layout,
    files_for,
    find_layout,
    find_program,
    hidden_program,
    install,
    written_by,
)

PROGRAM = ["/opt/busd/bin/busd"]
UNIT_FILES = ("busd.service", "busd.socket", "busd-gateway.service", "busd-bridge@.service")
USER_FILES = (*(f"systemd/user/{name}" for name in UNIT_FILES), "busd/busd.toml")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has nothing yet."""
    for name in ("CONFIG_HOME", "STATE_HOME", "RUNTIME_DIR"):
        monkeypatch.setenv(f"XDG_{name}", str(tmp_path / name.lower()))
    return tmp_path / "config_home"


@pytest.fixture
def layout(home: Path) -> Layout:
    return find_layout("user")


def run(*words: str) -> Result:
    return CliRunner().invoke(install_command, words)


def actions(layout: Layout, **options: bool) -> list[str]:
    return [file.action for file in install(layout, PROGRAM, **options)]


def test_a_user_gets_units_settings_and_the_next_steps(home: Path) -> None:
    done = run("--user")

    assert done.exit_code == 0
    assert done.stdout.splitlines() == [f"written   {home / name}" for name in USER_FILES]
    assert [line.strip() for line in done.stderr.splitlines()] == [
        "Next:",
        "systemctl --user daemon-reload",
        "systemctl --user enable --now busd.socket busd.service",
        "loginctl enable-linger    # the bus runs while you are not logged in, too",
        "busd doctor",
    ]
    assert stat.S_IMODE((home / "busd/busd.toml").stat().st_mode) == 0o600
    assert f"ExecStart={find_program()[0]}" in (home / USER_FILES[0]).read_text()


def test_the_system_gets_its_own(home: Path, tmp_path: Path) -> None:
    done = run("--system", "--root", str(tmp_path / "root"), "--json")

    said: dict[str, Any] = json.loads(done.stdout)
    root = tmp_path / "root/etc"
    assert [file["path"] for file in said["files"]] == [
        str(root / name)
        for name in (*(f"systemd/system/{name}" for name in UNIT_FILES), "busd/busd.toml")
    ]
    assert said["next"][0] == "systemctl daemon-reload"
    # The service is no root: it must be able to read its settings.
    assert stat.S_IMODE((root / "busd/busd.toml").stat().st_mode) == 0o644
    assert '#state = "/var/lib/busd"\n' in (root / "busd/busd.toml").read_text()


def test_root_means_the_system_and_everybody_else_themselves(home: Path, tmp_path: Path) -> None:
    done = run("--dry-run", "--json", "--root", str(tmp_path))

    assert json.loads(done.stdout)["flavour"] == ("system" if os.geteuid() == 0 else "user")


def test_to_install_again_changes_nothing(layout: Layout) -> None:
    assert actions(layout) == ["written"] * len(USER_FILES)
    before = [path.stat().st_mtime_ns for path, _, _ in files_for(layout, PROGRAM)]

    assert actions(layout) == ["unchanged"] * len(USER_FILES)
    assert [path.stat().st_mtime_ns for path, _, _ in files_for(layout, PROGRAM)] == before


def test_a_dry_run_writes_nothing(home: Path) -> None:
    done = run("--user", "--dry-run")

    assert [line.split()[0] for line in done.stdout.splitlines()] == ["written"] * len(USER_FILES)
    assert "nothing was written" in done.stderr
    assert not home.exists()


def test_a_changed_unit_is_kept_with_a_word_on_what_differs(home: Path) -> None:
    run("--user")
    unit = home / USER_FILES[0]
    unit.write_text(unit.read_text().replace("WatchdogSec=30s", "WatchdogSec=5s"))

    done = run("--user")

    assert done.exit_code == 1
    assert f"kept      {unit}" in done.stdout
    assert "-WatchdogSec=5s" in done.stdout
    assert "+WatchdogSec=30s" in done.stdout
    assert "--force replaces it" in done.stderr
    assert "WatchdogSec=5s" in unit.read_text()


def test_force_replaces_it_and_keeps_a_copy(home: Path) -> None:
    run("--user")
    unit = home / USER_FILES[0]
    changed = unit.read_text().replace("WatchdogSec=30s", "WatchdogSec=5s")
    unit.write_text(changed)

    done = run("--user", "--force")

    assert done.exit_code == 0
    assert f"replaced  {unit}" in done.stdout
    assert "systemctl --user restart busd.service" in done.stderr
    assert "WatchdogSec=30s" in unit.read_text()
    assert unit.with_name("busd.service.old").read_text() == changed


def test_changed_settings_are_kept_without_complaint(home: Path) -> None:
    run("--user")
    config = home / USER_FILES[-1]
    config.write_text(config.read_text().replace('#loop = "uvloop"', 'loop = "trio"'))

    done = run("--user")

    assert done.exit_code == 0
    assert f"kept      {config}" in done.stdout


def test_a_unit_of_another_version_is_updated_without_asking(layout: Layout) -> None:
    install(layout, ["/usr/bin/busd"])
    unit = layout.unit_folder / "busd.service"
    assert written_by(unit.read_text()) == __version__

    assert actions(layout) == ["updated", "unchanged", "updated", "updated", "unchanged"]
    assert f"ExecStart={PROGRAM[0]} serve --json\n" in unit.read_text()


def test_a_masked_unit_stays_masked(layout: Layout) -> None:
    layout.unit_folder.mkdir(parents=True)
    (layout.unit_folder / "busd.service").symlink_to("/dev/null")

    assert actions(layout) == ["kept", *["written"] * (len(USER_FILES) - 1)]
    assert (layout.unit_folder / "busd.service").is_symlink()


def test_a_folder_that_cannot_be_written_is_named(layout: Layout) -> None:
    layout.unit_folder.parent.parent.mkdir()
    layout.unit_folder.parent.write_text("in the way")

    with pytest.raises(BusdError, match=f"cannot write {layout.unit_folder}/busd.service: "):
        install(layout, PROGRAM)


@pytest.mark.parametrize(
    ("program", "command"),
    [
        (["/opt/busd/bin/busd"], "/opt/busd/bin/busd"),
        (["/opt/my bus/100%/$x"], '"/opt/my bus/100%%/$$x"'),
        (["/usr/bin/python3", "-m", "busd"], "/usr/bin/python3 -m busd"),
    ],
)
def test_the_program_is_written_as_systemd_reads_it(
    program: list[str], command: str, layout: Layout
) -> None:
    (_, unit, _), *_ = files_for(layout, program)
    assert f"\nExecStart={command} serve --json\n" in unit


def test_a_program_that_the_sandbox_hides_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("prefix", "base_prefix"):
        monkeypatch.setattr(sys, name, "/usr")
    system, user = find_layout("system"), find_layout("user")

    assert hidden_program(system, ["/opt/busd/bin/busd"]) == ""
    assert hidden_program(system, ["/home/me/.local/bin/busd"]) == "/home"
    assert hidden_program(user, ["/home/me/.local/bin/busd"]) == ""
