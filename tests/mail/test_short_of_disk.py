"""No room on the disk: what is sent meanwhile fails, what was kept stays, and it recovers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.journal.test_short_of_disk import ROOT, can_mount


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("disk", marks=pytest.mark.skipif(not can_mount(), reason="needs root")),
        "limit",
    ],
)
def test_without_room_nothing_is_kept_and_nothing_is_lost(how: str, tmp_path: Path) -> None:
    command = ["unshare", "-m"] if how == "disk" else []
    command += [sys.executable, "-m", "tests.mail.short_of_disk", how, str(tmp_path)]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    report: dict[str, Any] = json.loads(shown.stdout)
    assert report == {
        "failed": 50,
        "is failing": True,
        "is failing after": False,
        "read meanwhile": ["before"],
        "counted meanwhile": 1,
        "recovered": True,
        "names": ["before", "after"],
        "counted after": 2,
        "integrity": "ok",
        "logs": ["mail.failed", "mail.recovered"],
    }
