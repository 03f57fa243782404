"""Bridges as processes of the bus: started, watched, restarted and ended with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from busd import CallRefused
from tests.daemons import Loop
from tests.plugins.bridges.asking import PROGRAM, Bridges, open_bridges, program


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


@pytest.fixture
def bridges(loop: Loop, tmp_path: Path) -> Iterator[Bridges]:
    """A bus with the bridges `irc` and `sms`, both running."""
    tables = program(tmp_path, "irc") | program(tmp_path, "sms", name="texts")
    with open_bridges(loop, tmp_path, tables) as bridges:
        bridges.until("irc", "running")
        bridges.until("sms", "running")
        yield bridges


def test_bridges_start_with_the_bus_and_say_how_they_are(bridges: Bridges) -> None:
    irc, sms = bridges.list().values()
    assert irc["status"] == {"state": "connected", "queue": 0}
    assert (irc["kind"], irc["peer"], irc["isOnBus"]) == ("program", "irc-bridge", True)
    assert sms["peer"] == "texts"


def test_they_end_with_the_bus(bridges: Bridges) -> None:
    pids = [each["pid"] for each in bridges.list().values()]
    assert bridges.daemon.stop() == 0
    assert [is_gone(pid) for pid in pids] == [True, True]


def test_one_that_is_killed_is_started_again_and_the_other_is_left_alone(bridges: Bridges) -> None:
    before = bridges.list()
    os.kill(before["irc"]["pid"], signal.SIGKILL)
    after = bridges.until("irc", "running", lambda irc: irc.get("restarts") == 1)
    assert after["pid"] != before["irc"]["pid"]
    assert after["reason"] == "killed by SIGKILL"
    assert bridges.list()["sms"]["pid"] == before["sms"]["pid"]


def test_a_restart_on_request_gets_it_a_new_process(bridges: Bridges) -> None:
    before = bridges.list()["irc"]["pid"]
    bridges.bus.call("bridges.restart", {"name": "irc"})
    after = bridges.until("irc", "running")
    assert after["pid"] != before
    assert "restarts" not in after
    assert is_gone(before)


def test_a_reload_restarts_only_those_whose_table_has_changed(bridges: Bridges) -> None:
    before, folder = bridges.list(), bridges.daemon.folder
    bridges.reload(program(folder, "irc", restarts=3) | program(folder, "sms", name="texts"))
    after = bridges.until("irc", "running", lambda irc: irc["pid"] != before["irc"]["pid"])
    assert is_gone(before["irc"]["pid"])
    assert after["state"] == "running"
    assert bridges.list()["sms"]["pid"] == before["sms"]["pid"]


def test_a_reload_ends_those_that_are_disabled_or_gone_and_starts_new_ones(
    bridges: Bridges,
) -> None:
    before, folder = bridges.list(), bridges.daemon.folder
    bridges.reload(program(folder, "irc", enabled=False) | program(folder, "fax"))
    assert bridges.list()["irc"]["state"] == "disabled"
    bridges.until("fax", "running")
    assert is_gone(before["irc"]["pid"])
    assert is_gone(before["sms"]["pid"])
    assert bridges.list().keys() == {"fax", "irc"}
    with pytest.raises(CallRefused, match="irc is disabled: set enabled in its table"):
        bridges.bus.call("bridges.restart", {"name": "irc"})


def test_settings_that_are_refused_change_nothing(bridges: Bridges) -> None:
    before = bridges.list()
    bridges.daemon.is_blamed = True  # the refusal is an error in its log
    done = bridges.reload({"bridges.programs.irc": {"command": ["true"], "restart": 1}})
    assert "did you mean 'bridges.programs.restarts'?" in done["refused"]
    assert {name: each["pid"] for name, each in bridges.list().items()} == {
        name: each["pid"] for name, each in before.items()
    }


def test_one_that_fails_again_and_again_is_given_up_until_it_is_restarted(
    loop: Loop, tmp_path: Path
) -> None:
    tables = program(tmp_path, "irc", restarts=1)
    (tmp_path / "irc/end").write_text("3")
    with open_bridges(loop, tmp_path, tables) as bridges:
        failed = bridges.until("irc", "failed")
        assert failed["reason"] == "exit code 3: the bridge begins"
        assert bridges.bus.ping()
        bridges.daemon.is_blamed = True
        [fault] = bridges.daemon.faults()
        assert '"event":"bridge.failed"' in fault
        assert '"bridge":"irc"' in fault
        (tmp_path / "irc/end").unlink()
        bridges.bus.call("bridges.restart", {"name": "irc"})
        assert "reason" not in bridges.until("irc", "running")


def test_one_that_finds_its_settings_wrong_is_not_restarted(loop: Loop, tmp_path: Path) -> None:
    tables = program(tmp_path, "irc")
    (tmp_path / "irc/end").write_text("78")
    with open_bridges(loop, tmp_path, tables) as bridges:
        assert "restarts" not in bridges.until("irc", "failed")
        bridges.daemon.is_blamed = True


def test_a_program_that_is_not_there_is_named(loop: Loop, tmp_path: Path) -> None:
    missing = str(tmp_path / "no-such-program")
    with open_bridges(loop, tmp_path, program(tmp_path, "irc", command=[missing])) as bridges:
        assert missing in bridges.until("irc", "failed")["reason"]
        bridges.daemon.is_blamed = True


def test_a_secret_is_given_by_a_file_of_its_own(loop: Loop, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("swordfish")
    secret.chmod(0o600)
    tables = program(tmp_path, "irc", credentials={"SECRET": str(secret)})
    with open_bridges(loop, tmp_path, tables) as bridges:
        irc = bridges.until("irc", "running", lambda irc: "status" in irc)
        assert irc["status"]["detail"] == "swordfish"
        for name in ("cmdline", "environ"):
            assert b"swordfish" not in Path(f"/proc/{irc['pid']}/{name}").read_bytes()
        assert "swordfish" not in bridges.daemon.log()


def test_one_that_a_unit_runs_is_asked_too(loop: Loop, tmp_path: Path) -> None:
    """It is disabled here, so that the bus does not start a second one."""
    with open_bridges(loop, tmp_path, program(tmp_path, "irc", enabled=False)) as bridges:
        environment = os.environ | {
            "BUSD_ADDRESS": f"unix:{bridges.daemon.path}",
            "BUSD_CLIENT_ID": "irc-bridge",
            "BRIDGE_FOLDER": str(tmp_path / "irc"),
        }
        with subprocess.Popen([sys.executable, PROGRAM], env=environment) as by_hand:
            try:
                record = bridges.until("irc", "disabled", lambda irc: "status" in irc)
            finally:
                by_hand.terminate()
        assert record["status"]["state"] == "connected"
        assert "pid" not in record
