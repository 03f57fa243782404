"""Check what a worker is started with, before somebody waits for its answer.

This module is public: a plugin that starts `busd worker`, or a program of the operator's, uses it.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from busd.errors import ConfigError

__all__ = ["check_no_secret", "find_program_fault", "has_openai_extra", "openai_extra_fix"]

_OPENAI_MODULE = "httpx"
_SECRET_NAMES = {"key", "api_key", "api-key", "apikey", "token", "access_token", "password"}


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


def check_no_secret(url: str) -> None:
    """Raise ConfigError if everybody who can list processes would learn a secret from this URL."""
    try:
        parts = urlsplit(url)
        names = {name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
        has_secret = parts.password is not None or parts.username is not None
    except ValueError as problem:
        raise ConfigError(f"the endpoint's URL cannot be read: {problem}") from None
    if has_secret or names & _SECRET_NAMES:
        raise ConfigError(
            "the endpoint's URL holds a secret; put it into a credential named OPENAI_API_KEY"
        )
