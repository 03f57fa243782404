"""Secrets: read from a file, a credential or the environment; never shown."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from busd.errors import ConfigError
from busd.plugin.file_safety import find_danger
from busd.wire.plain_file import read_plain_file

_MAX_BYTES = 64 * 1024


class Secret:
    """A secret; only `value` shows it."""

    __slots__ = ("name", "value")

    def __init__(self, name: str, value: str) -> None:
        self.name = name
        self.value = value

    def __repr__(self) -> str:
        return f"<Secret {self.name}>"


def read_secret(name: str, file: Path | str = "") -> Secret:
    """Return a secret; raise ConfigError that says where it is looked for.

    It is the content of `file`, if one is named; else the credential of this name
    (`$CREDENTIALS_DIRECTORY/NAME`); else the environment variable of this name.
    """
    if str(file):
        return Secret(name, _read_private(name, Path(file).expanduser()))
    if folder := os.environ.get("CREDENTIALS_DIRECTORY"):
        credential = Path(folder) / name
        if credential.exists():
            return Secret(name, _read(name, credential))
    if value := os.environ.get(name, "").strip():
        return Secret(name, _checked(name, f"the environment variable {name}", value))
    raise ConfigError(
        f"no {name}: name a file with it in the settings, or pass the credential"
        f" $CREDENTIALS_DIRECTORY/{name}, or set the environment variable {name}"
    )


def _read_private(name: str, file: Path) -> str:
    """Read a file that only its owner, or a group that he chose, can read."""
    try:
        mode = file.stat().st_mode
    except OSError as problem:
        raise ConfigError(f"{name}: cannot read {file}: {problem.strerror}") from None
    if mode & stat.S_IROTH:
        raise ConfigError(f"{name}: everybody may read {file}; run: chmod 0600 {file}")
    if danger := find_danger(file, is_deep=False):
        raise ConfigError(f"{name}: {danger}")
    return _read(name, file)


def _read(name: str, file: Path) -> str:
    try:
        return _checked(name, str(file), read_plain_file(file, _MAX_BYTES).decode().strip())
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: {file} is not text") from None
    except OSError as problem:
        raise ConfigError(f"{name}: cannot read {file}: {problem.strerror}") from None


def _checked(name: str, where: str, value: str) -> str:
    if not value:
        raise ConfigError(f"{name}: {where} is empty")
    if not (value.isascii() and value.isprintable()):
        raise ConfigError(f"{name}: {where} contains more than one line of ASCII")
    return value
