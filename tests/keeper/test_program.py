"""The keeper as a program of its own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

from busd.keeper.lock import LOCK
from busd.keeper.process import SOCKET
from busd.keeper.tree import read_process
from tests.supervise.processes import has_ended

KEEPER = [sys.executable, "-m", "busd.keeper"]
HELLO = {"order": "hello", "number": 1, "when_bus_stops": "stop", "adopt_seconds": 1.0}


def test_it_serves_a_state_directory_and_ends_with_its_daemon(tmp_path: Path) -> None:
    done = subprocess.run([*KEEPER, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / LOCK).exists()
    with socket.socket(socket.AF_UNIX) as daemon, daemon.makefile("rwb") as lines:
        daemon.connect(str(tmp_path / SOCKET))
        lines.write(json.dumps(HELLO).encode() + b"\n")
        lines.flush()
        answer = json.loads(lines.readline())
        reaper = read_process(answer["pid"])
    assert (answer["answer"], answer["is_ending"]) == (1, False)
    assert reaper is not None
    for pid in (answer["pid"], reaper.parent):
        assert has_ended(pid, 10.0)
    assert not (tmp_path / SOCKET).exists()


def test_without_a_state_directory_it_says_how_it_is_used() -> None:
    done = subprocess.run(KEEPER, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "usage: python -m busd.keeper STATE_DIRECTORY\n",
    )


def test_a_state_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    state = tmp_path / "none"
    done = subprocess.run([*KEEPER, str(state)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        f"[Errno 2] No such file or directory: '{state}'\n",
    )
