"""Spawners: what starts, watches and stops worker processes. One contract, two of them.

A spawner supervises by itself (restart with back-off, then give up) and reports; whoever asked
reads the reports. A worker outlives neither its stop nor, unless it is to be kept, the daemon.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from busd import AgentsSettings

Kind = Literal["exited", "restarted", "failed", "stopped"]


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What to start, and within which limits."""

    client_id: str
    command: list[str]  # never a secret in it
    workspace: Path  # current directory; logs/ in it takes what the worker prints
    environment: dict[str, str] = {}
    credentials: dict[
        str, str
    ] = {}  # name -> file; the worker finds them by $CREDENTIALS_DIRECTORY
    memory_max_bytes: int | None = None
    file_max_bytes: int | None = None
    cpu_percent: int | None = None
    tasks_max: int | None = None
    restarts: int = 5
    restart_seconds: float = 0.5
    stop_seconds: float = 5.0


class Report(msgspec.Struct, frozen=True):
    """Something that happened to a worker.

    `exited`: it ended and will be started again or not, `restarted`: it runs again, `failed`: it
    ended too often (or could not be started at all), `stopped`: it ended because it was told to,
    or by itself with exit code 0.
    """

    kind: Kind
    reason: str = ""  # "exit code 3", "killed by SIGKILL", "no such program: x"
    last_lines: tuple[str, ...] = ()  # of its stderr
    pid: int | None = None


class Running(Protocol):
    """A worker that was started."""

    client_id: str
    unit: str  # by which `adopt` finds it again: "busd-worker-….service", or "pid 123"
    limits: dict[str, str]  # those really in force, by name
    log: str  # where it prints to: a file, or "journal, unit busd-worker-….service"

    @property
    def pid(self) -> int | None: ...
    def reports(self) -> AsyncIterator[Report]:
        """Give what happens to it, in order; ends after `failed` or `stopped`."""

    async def stop(self) -> None:
        """End it with everything it started: asked first, killed after `stop_seconds`."""

    def owns(self, pid: int | None, socket: int | None) -> bool | None:
        """Return whether a connection is of one of its processes; None while nobody can tell.

        The kernel knows the pid at the other end of a Unix socket, and the inode of that of a
        loopback connection.
        """

    async def last_lines(self, count: int = 20) -> list[str]:
        """Give the last lines it wrote to stderr (and stdout)."""


class Spawner(Protocol):
    """Starts workers; entered before the first one, left after the last."""

    name: str

    async def __aenter__(self) -> Spawner: ...
    async def __aexit__(self, *problem: object) -> None:
        """End all workers, or leave them to the next daemon, as configured."""

    async def start(self, launch: Launch) -> Running:
        """Start a worker; raises SpawnFailed saying why if the program cannot be started."""

    async def adopt(self, client_id: str, unit: str) -> Running | None:
        """Take over a worker that an earlier daemon started; None if it is no more.

        Without a unit it is not known whether the worker came to be.
        """

    async def reload(self, agents: AgentsSettings) -> list[str]:
        """Go by other settings from now on; says what of them does not hold for all workers."""


class SpawnFailed(Exception):
    """A worker could not be started; the text is for whoever asked for it."""


# What a worker gets of the daemon's own environment; all else may be a secret of the daemon's.
_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "PYTHONPATH")


def environment_of(launch: Launch) -> dict[str, str]:
    """Give the whole environment that a worker is started with."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**inherited, **launch.environment}
