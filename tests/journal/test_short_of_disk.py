"""No room on the disk: the log stops and recovers, and whoever adds to it never notices."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import busd

ROOT = Path(busd.__file__).parent.parent


def can_mount() -> bool:
    """True if we may have a file system of our own."""
    if os.geteuid() or not shutil.which("unshare"):
        return False
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture(
    params=[
        pytest.param("disk", marks=pytest.mark.skipif(not can_mount(), reason="needs root")),
        "limit",
    ],
    scope="module",
)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What happened to a log while there was no room for it."""
    command = ["unshare", "-m"] if request.param == "disk" else []
    folder = str(tmp_path_factory.mktemp("short"))
    command += [sys.executable, "-m", "tests.journal.short_of_disk", request.param, folder]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)


def test_no_row_more_than_allowed_waits_and_the_rest_is_counted(report: Any) -> None:
    assert report["backlog"] == 1000
    assert report["dropped"] == 10_500 - 1000


def test_whoever_adds_rows_is_not_held_up(report: Any) -> None:
    assert report["microseconds per row"] < 50


def test_what_was_written_before_can_be_read_meanwhile(report: Any) -> None:
    assert report["seen meanwhile"] == ["before"]


def test_what_waited_is_written_once_there_is_room_again(report: Any) -> None:
    assert report["written"] == 1001
    assert not report["is failing"]
    assert report["integrity"] == "ok"


def test_failure_and_recovery_are_said_once_each(report: Any) -> None:
    assert report["logs"] == ["journal.failed", "journal.overflowed", "journal.recovered"]


def test_a_log_that_there_is_no_room_for_is_the_operators_to_mend(report: Any) -> None:
    assert report["start"].startswith("cannot open the activity log ")
    assert report["start"].endswith(("disk is full", "disk I/O error"))
