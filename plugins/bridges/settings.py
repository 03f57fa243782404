"""The settings of bridges: the table `[bridges]`.

The tables of bridges that are plugins, such as `[bridges.telegram]`, are declared by these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from busd import ConfigError, DeclaredSettings, Finding
from busd.agent.program_check import find_program_fault
from busd.bridge.settings import check_absolute, check_bridge_name, find_file_doubts, find_late_end
from busd.quantities import Bytes, Count, Seconds, about

if TYPE_CHECKING:
    from busd import PluginSettings

_KEY = "bridges.programs"
_TAKEN = ("telegram", "discord", "hook")  # tables of plugins


class ProgramTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A bridge that is a program of the operator's, written with `busd.Bridge`."""

    enabled: Annotated[bool, about("Start the bridge with the bus.")] = True
    command: Annotated[list[str], about("The program and its arguments.")]
    name: Annotated[
        str, about("Name of the bridge on the bus. Default: that of the table, and `-bridge`.")
    ] = ""
    environment: Annotated[
        dict[str, str], about("Additional environment variables. Not for secrets.")
    ] = {}
    credentials: Annotated[
        dict[str, str], about("Names and files of secrets, found in `$CREDENTIALS_DIRECTORY`.")
    ] = {}
    restarts: Annotated[
        Count, about("Consecutive failures after which the bus does not restart it.")
    ] = 10
    stop_seconds: Annotated[Seconds, about("Time it has to exit before it is killed.")] = 5.0
    memory_max_bytes: Annotated[Bytes | None, about("Memory of its process.")] = None


class BridgesTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Processes that connect other chat systems to the bus."""

    programs: Annotated[
        dict[str, ProgramTable], about("A bridge that is a program; `bridges.programs.NAME`.")
    ] = {}


class BridgesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table of the settings file that is ours."""

    bridges: BridgesTable = BridgesTable()


def peer_name(name: str, table: ProgramTable) -> str:
    """Return the name of a program's bridge on the bus."""
    return table.name or f"{name}-bridge"


def check(own: BridgesSettings) -> None:
    """Raise ConfigError for what the types cannot express."""
    owners: dict[str, str] = {}
    for name, table in own.bridges.programs.items():
        key = f"{_KEY}.{name}"
        if not re.fullmatch(r"[A-Za-z0-9][\w-]{0,31}", name) or name in _TAKEN:
            raise ConfigError(f"{key}: {name!r} cannot be its name; choose another word")
        check_bridge_name(key, peer_name(name, table))
        if not table.command:
            raise ConfigError(f"{key}.command must name a program")
        for credential, file in table.credentials.items():
            check_absolute(f"{key}.credentials.{credential}", file)
        other = owners.setdefault(peer_name(name, table), key)
        if other != key:
            raise ConfigError(f"{key}.name: {other} is called {peer_name(name, table)!r}, too")


def find_doubts(own: BridgesSettings, limits: PluginSettings) -> Iterator[Finding]:
    """Find programs that would not start, or not end in time."""
    for name, table in own.bridges.programs.items():
        key = f"{_KEY}.{name}"
        if not table.enabled:
            continue
        if fault := find_program_fault(table.command[0], table.environment.get("PATH")):
            fix = f"install it, or change {key}.command"
            yield Finding("bridges", "problem", f"{key}.command: {fault}", fix)
        for credential, file in table.credentials.items():
            yield from find_file_doubts(f"{key}.credentials.{credential}", Path(file))
        yield from find_late_end(key, table.stop_seconds, limits)


settings = DeclaredSettings(BridgesSettings, check=check, find_doubts=find_doubts)
