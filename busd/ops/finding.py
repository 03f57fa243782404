"""What the doctor finds, and how it asks other programs."""

from __future__ import annotations

import shutil
import subprocess
from typing import Literal

import msgspec

Level = Literal["ok", "warning", "problem"]

_PATIENCE_SECONDS = 5.0


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one check found; `fix` is a command or a sentence."""

    item: str
    level: Level
    says: str
    fix: str = ""


def run_quietly(command: list[str]) -> str | None:
    """Give what a program says, None if it is not there, fails or takes too long."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - the words are ours
            command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
