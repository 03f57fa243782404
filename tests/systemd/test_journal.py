"""What journald reads: the same lines as everybody, with their priority in front."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemons import PATIENCE_SECONDS, serve_args
from tests.systemd.managers import ROOT


@pytest.mark.parametrize("is_journal", [True, False])
def test_a_line_for_the_journal_has_its_priority(is_journal: bool, tmp_path: Path) -> None:
    read, write = os.pipe()
    facts = os.fstat(write)
    stream = f"{facts.st_dev}:{facts.st_ino}" if is_journal else "1:1"
    process = subprocess.Popen(
        [sys.executable, "-m", "busd", *serve_args(tmp_path), "--log-level", "info"],
        cwd=ROOT,
        env={**os.environ, "JOURNAL_STREAM": stream},
        stdout=subprocess.PIPE,
        stderr=write,
    )
    os.close(write)
    with process, os.fdopen(read) as said:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        lines = said.read().splitlines()
        assert process.wait(PATIENCE_SECONDS) == 0

    prefix = "<6>" if is_journal else ""
    assert all(line.startswith(f"{prefix}{{") for line in lines)
    events = [json.loads(line.removeprefix(prefix))["event"] for line in lines]
    assert "daemon.stopping" in events
