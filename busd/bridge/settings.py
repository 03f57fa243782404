"""The settings that every bridge has, and what may be wrong with them.

This module is public: plugins may import the names below.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from busd.errors import ConfigError
from busd.finding import Finding
from busd.plugin.file_safety import find_danger
from busd.plugin.host import PluginSettings
from busd.quantities import Bytes, Count, Seconds, about
from busd.vocabulary.addresses import prefix_of

__all__ = [
    "BridgeTable",
    "check_absolute",
    "check_bridge_name",
    "check_bridge_table",
    "credential_file",
    "find_bridge_doubts",
    "find_file_doubts",
    "find_late_end",
    "install_command",
    "missing_packages",
]

_NO_CHATS = ("agent", "system", "plugin", "events")


class BridgeTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table of a bridge that is a plugin; one that is missing starts nothing."""

    secret_name: ClassVar[str] = ""  # of the credential or variable, if there is no `token_file`
    packages: ClassVar[dict[str, str]] = {}  # modules it imports, and what installs them
    extra: ClassVar[str] = ""  # of busd, with these packages

    enabled: Annotated[bool, about("Start the bridge with the bus.")] = True
    name: Annotated[str, about("Name of the bridge on the bus.")]
    prefix: Annotated[
        str, about("Prefix of the addresses of its chats; no other bridge may have the same.")
    ]
    token_file: Annotated[str, about("File with the token.")] = ""
    restarts: Annotated[
        Count, about("Consecutive failures after which the bus does not restart it.")
    ] = 10
    stop_seconds: Annotated[Seconds, about("Time it has to exit before it is killed.")] = 5.0
    memory_max_bytes: Annotated[Bytes | None, about("Memory of its process.")] = None


def check_bridge_table(key: str, table: BridgeTable) -> None:
    """Raise ConfigError for what the types cannot express; `key` is like `bridges.telegram`."""
    check_bridge_name(key, table.name)
    _check_prefix(key, table.prefix)
    check_absolute(f"{key}.token_file", table.token_file)


def check_bridge_name(key: str, name: str) -> None:
    """Raise ConfigError for a name that no bridge can have on the bus."""
    if not re.fullmatch(r"[\w.-]{1,64}", name):
        raise ConfigError(f"{key}.name: {name!r} must be a word without a prefix")


def _check_prefix(key: str, prefix: str) -> None:
    """Raise ConfigError for a prefix that chats cannot have."""
    if not re.fullmatch(r"[a-z][a-z0-9_.-]{0,31}", prefix):
        raise ConfigError(f"{key}.prefix: {prefix!r} must be like tg: letters and digits")
    if prefix in _NO_CHATS:
        raise ConfigError(f"{key}.prefix: {prefix}: is no address of a chat; choose another word")
    if prefix_of(prefix) != prefix:
        raise ConfigError(
            f"{key}.prefix: {prefix!r} is a channel; its prefix is {prefix_of(prefix)}"
        )


def check_absolute(key: str, file: str) -> None:
    """Raise ConfigError for a relative path: a bridge runs in a folder of its own."""
    if file and not Path(file).is_absolute():
        raise ConfigError(f"{key}: {file!r} must be an absolute path")


def missing_packages(table: type[BridgeTable]) -> list[str]:
    """Return the packages of its extra that are not installed."""
    return [package for module, package in table.packages.items() if find_spec(module) is None]


def install_command(table: type[BridgeTable]) -> str:
    """Return the command that installs them."""
    return f"pip install 'busd[{table.extra}]'"


def find_bridge_doubts(key: str, table: BridgeTable, limits: PluginSettings) -> Iterator[Finding]:
    """Find what would keep a bridge from starting, such as its token, or from ending in time."""
    yield from find_late_end(key, table.stop_seconds, limits)
    if missing := missing_packages(type(table)):
        words = f"{key} needs {', '.join(missing)}, which is not installed"
        yield Finding(key, "problem", words, f"run: {install_command(type(table))}")
    if table.token_file:
        yield from find_file_doubts(f"{key}.token_file", Path(table.token_file))
    elif table.secret_name and not _has_secret(table.secret_name):
        words = f"{key} has no token"
        fix = f"set {key}.token_file, or give the bus a credential {table.secret_name}"
        yield Finding(key, "problem", words, fix)


def find_late_end(key: str, seconds: float, limits: PluginSettings) -> Iterator[Finding]:
    """Find a bridge that the plugin that ends it would not wait for."""
    if seconds >= limits.stop_seconds:
        words = (
            f"{key}.stop_seconds is {seconds:g} and plugins.stop_seconds only "
            f"{limits.stop_seconds:g}: a stopping bus would be gone before the bridge"
        )
        fix = f"set plugins.stop_seconds to more than {seconds:g}"
        yield Finding(key, "warning", words, fix)


def _has_secret(name: str) -> bool:
    return credential_file(name) is not None or bool(os.environ.get(name))


def credential_file(name: str) -> Path | None:
    """Return the file of a credential that the service manager has given this process."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    file = Path(folder) / name if folder else None
    return file if file and file.is_file() else None


def find_file_doubts(key: str, file: Path) -> Iterator[Finding]:
    """Find what is wrong with a file that contains a secret."""
    try:
        facts = file.stat()
    except OSError as problem:
        words = f"{key}: {file}: {problem.strerror}"
        yield Finding(key, "problem", words, "create it, or name another file")
        return
    if facts.st_mode & 0o004:
        words = f"{key}: everybody may read {file} (mode {facts.st_mode & 0o777:04o})"
        yield Finding(key, "problem", words, f"chmod 0600 {file}, and renew the token")
    elif danger := find_danger(file, is_deep=False):
        says, _, fix = danger.partition("; ")
        yield Finding(key, "problem", f"{key}: {says}", fix.removeprefix("run: "))
    elif not os.access(file, os.R_OK):
        words = f"{key}: you may not read {file}"
        yield Finding(key, "problem", words, "let the user of the bus own it")
