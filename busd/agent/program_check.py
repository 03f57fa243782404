"""Find out whether what a worker needs is there, before somebody waits for its answer."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from pathlib import Path

_OPENAI_MODULE = "httpx"


def find_program_fault(program: str, path: str | None = None, folder: Path | None = None) -> str:
    """Return why a program cannot be started; "" if it can, or if only its folder would tell.

    `path` is the PATH it is looked up in, by default that of this process; a relative path is
    looked up in `folder`, where the program is going to run.
    """
    if "/" not in program:
        if shutil.which(program, path=path):
            return ""
        return f"program {program!r} not found in PATH"
    if not program.startswith("/") and folder is None:
        return ""
    file = (folder or Path()) / program
    if not file.exists():
        return f"program {program} does not exist"
    if file.is_dir() or not os.access(file, os.X_OK):
        return f"{program} cannot be executed"
    return ""


def has_openai_extra() -> bool:
    """Return True if an endpoint can be asked: what that needs is installed on request only."""
    return importlib.util.find_spec(_OPENAI_MODULE) is not None


def openai_extra_fix() -> str:
    """Return the command that installs what asking an endpoint needs."""
    return f"{shlex.quote(sys.executable)} -m pip install 'busd[openai]'"
