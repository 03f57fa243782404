"""What an operator sees of bridges: `busd bridges`, `busd status`, `busd doctor`."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from busd import SyncClient
from tests.daemons import PATIENCE_SECONDS, Loop
from tests.plugins.bridges.asking import Bridges, open_bridges, program


@pytest.fixture
def bridges(loop: Loop, tmp_path: Path) -> Iterator[Bridges]:
    """A bus with the bridge `irc`, which runs."""
    with open_bridges(loop, tmp_path, program(tmp_path, "irc")) as bridges:
        bridges.until("irc", "running")
        yield bridges


def test_ls_shows_the_process_and_the_link_of_each(bridges: Bridges) -> None:
    bridges.say("irc", state="connected", queue=3, last_update_at="2020-01-01T00:00:00Z")
    head, row = bridges.run("bridges").stdout.splitlines()
    pid = str(bridges.list()["irc"]["pid"])
    assert head.split()[:5] == ["BRIDGE", "STATE", "PID", "LINK", "LAST"]
    words = row.split()
    assert words[:4] == ["irc", "running", pid, "connected"]
    assert words[5:] == ["ago", "3", "0"]
    listed = json.loads(bridges.run("bridges", "ls", "--json").stdout)
    assert [each["name"] for each in listed["bridges"]] == ["irc"]


def test_ls_says_that_a_bridge_pauses_or_why_its_link_is_down(bridges: Bridges) -> None:
    bridges.say("irc", state="connected", paused_until="2030-01-01T00:00:00Z")
    assert bridges.run("bridges").stdout.endswith("paused until 2030-01-01T00:00:00Z\n")
    bridges.say("irc", state="conflict", detail="409: another getUpdates")
    assert bridges.run("bridges").stdout.endswith("409: another getUpdates\n")
    assert "bridges: irc conflict\n" in bridges.run("status").stdout


def test_status_has_one_line_of_them(bridges: Bridges) -> None:
    assert "bridges: irc running\n" in bridges.run("status").stdout
    bridges.reload({})
    assert "bridges: " not in bridges.run("status").stdout


def test_show_prints_all_that_is_known_and_the_last_lines(bridges: Bridges) -> None:
    bridges.say("irc", state="connected", pushed=17)
    shown = [line.split() for line in bridges.run("bridges", "show", "irc").stdout.splitlines()]
    assert ["peer", "irc-bridge"] in shown
    assert ["pushed", "17"] in shown
    assert shown[-1] == ["the", "bridge", "begins"]
    found = json.loads(bridges.run("bridges", "show", "irc", "--json").stdout)
    assert found["bridge"]["status"]["pushed"] == 17
    assert found["lastLines"] == ["the bridge begins"]


def test_an_unknown_bridge_is_refused_with_what_may_be_meant(bridges: Bridges) -> None:
    said = bridges.run("bridges", "show", "ircc", code=1).stderr
    assert "there is no bridge 'ircc'; did you mean 'irc'?" in said
    said = bridges.run("bridges", "restart", "telegram", code=1).stderr
    assert "add a table bridges.telegram" in said


def test_logs_print_what_it_wrote_and_follow_it(bridges: Bridges) -> None:
    assert bridges.run("bridges", "logs", "irc").stdout == "the bridge begins\n"
    words = ["bridges", "logs", "irc", "-f", "-n", "1", "--address", f"unix:{bridges.daemon.path}"]
    command = [sys.executable, "-m", "busd", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as following:
        try:
            assert _line(following) == b"the bridge begins\n"
            bridges.bus.send("irc-bridge", {"type": "say", "content": {"text": "hello"}})
            assert _line(following) == b"hello\n"
        finally:
            following.terminate()


def _line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], PATIENCE_SECONDS)
    assert readable
    return process.stdout.readline()


def test_restart_says_what_became_of_it(bridges: Bridges) -> None:
    before = bridges.list()["irc"]["pid"]
    assert bridges.run("bridges", "restart", "irc").stderr.startswith("irc is ")
    assert bridges.until("irc", "running")["pid"] != before
    bridges.reload(program(bridges.daemon.folder, "irc", enabled=False))
    assert "irc is disabled" in bridges.run("bridges", "restart", "irc", code=1).stderr


def test_the_doctor_names_what_keeps_a_bridge_from_its_work(bridges: Bridges) -> None:
    assert _findings(bridges) == [("ok", "it runs, connected")]
    bridges.say("irc", state="unauthorized", detail="401")
    assert _findings(bridges) == [("problem", "the other system refuses its token: 401")]
    bridges.say("irc", state="conflict")
    assert _findings(bridges) == [("problem", "another program uses the same token")]
    bridges.say("irc", state="failed", detail="banned")
    assert _findings(bridges) == [("problem", "it cannot serve the other system: banned")]
    bridges.say("irc", state="waiting", detail="no route to host")
    waits = ("warning", "it waits for the other system: no route to host")
    assert _findings(bridges) == [waits]
    bridges.say("irc", state="waiting", detail="no route to host", is_disk_failing=True)
    assert _findings(bridges) == [waits, ("problem", "it cannot write what it has posted")]
    bridges.say("irc", state="connected", paused_until="2030-01-01T00:00:00Z")
    [(level, words)] = _findings(bridges)
    assert (level, words.split(":")[0]) == ("warning", "it pauses until 2030-01-01T00")


def test_the_doctor_says_that_a_process_has_failed(loop: Loop, tmp_path: Path) -> None:
    tables = program(tmp_path, "irc", restarts=1)
    (tmp_path / "irc/end").write_text("3")
    with open_bridges(loop, tmp_path, tables) as bridges:
        bridges.until("irc", "failed")
        words = "it does not run: exit code 3: the bridge begins"
        assert _findings(bridges) == [("problem", words)]
        bridges.daemon.is_blamed = True


def test_the_doctor_says_that_the_gateway_does_not_serve_webhooks(
    loop: Loop, tmp_path: Path
) -> None:
    with open_bridges(loop, tmp_path, {"bridges.hook": {"enabled": True}}) as bridges:
        assert bridges.list()["hook"]["kind"] == "gateway"
        assert _findings(bridges) == [("problem", "the gateway does not serve it")]
        said = bridges.run("bridges", "restart", "hook", code=1).stderr
        assert "hook is served by the gateway" in said


def test_the_doctor_says_that_two_bridges_have_the_same_addresses(bridges: Bridges) -> None:
    address = f"unix:{bridges.daemon.path}"
    with (
        SyncClient("one", address=address) as one,
        SyncClient("two", address=address) as two,
        SyncClient("agent:a", address=address) as agent,
    ):
        one.subscribe("sms:*")
        agent.subscribe("sms:*")
        two.subscribe("events:sms:*")
        assert _findings(bridges) == [("ok", "it runs, connected")]
        two.subscribe("sms:*")
        words = "one and two both take the replies to sms:*: users may get none, or two"
        assert _findings(bridges) == [("ok", "it runs, connected"), ("problem", words)]


def test_a_peer_of_the_same_name_does_not_speak_for_a_bridge(bridges: Bridges) -> None:
    address = f"unix:{bridges.daemon.path}"
    with SyncClient("irc-bridge", address=address) as stranger:
        stranger.on()(lambda message: None)
        bridges.bus.call("bridges.restart", {"name": "irc"})  # so that the other one is asked first
        irc = bridges.until("irc", "running", lambda irc: bool(irc["status"]))
        assert irc["status"]["state"] == "connected"


def _findings(bridges: Bridges) -> list[tuple[str, str]]:
    """Return what the doctor says of bridges; the set-up of this host is its own matter."""
    address = f"unix:{bridges.daemon.path}"
    done = subprocess.run(
        [sys.executable, "-m", "busd", "doctor", "--user", "--json", "--address", address],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [(each["level"], each["says"]) for each in found if each["item"].startswith("bridge ")]
