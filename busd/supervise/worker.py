"""A supervised process: what becomes of it, and the contract of its supervisor.

A spawner starts processes and supervises them by itself: it restarts one that ended, with growing
pauses, and gives up after so many. It reports what happens, in this order:

| after | comes |
| --- | --- |
| its start, `restarted` | `exited`, `stopped` or `failed` |
| `exited` | `restarted`, `stopped` or `failed` |
| `stopped`, `failed` | nothing |

A process outlives neither its stop nor, unless it is to be kept, the daemon.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator
from typing import Literal, Protocol

import anyio
import msgspec

from busd.keeper.launch import Launch

Kind = Literal["exited", "restarted", "failed", "stopped"]
_MAX_UNREAD = 64


class SupervisorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all processes of one daemon together."""

    when_bus_stops: Literal["stop", "keep"] = "stop"
    adopt_seconds: float = 60.0  # how long kept processes wait for the daemon to come back
    stop_seconds: float = 5.0  # from asking a process to end to killing it
    memory_max_bytes: int | None = None  # of all together (systemd)
    cpu_percent: int | None = None
    tasks_max: int | None = None


class SpawnFailed(Exception):
    """A process could not be started; the text is for whoever asked for it."""


class Report(msgspec.Struct, frozen=True):
    """Something that happened to a process.

    `exited`: it ended and will be started again or not, `restarted`: it runs again, `failed`: it
    ended too often (or could not be started at all), `stopped`: it ended because it was told to,
    or by itself with exit code 0.
    """

    kind: Kind
    reason: str = ""  # "exit code 3", "killed by SIGKILL", "no such program: x"
    last_lines: tuple[str, ...] = ()  # of its stderr
    pid: int | None = None


class SupervisedProcess(ABC):
    """A process that a spawner has started, or adopted."""

    def __init__(self, name: str, unit: str, log: str) -> None:
        self.name = name
        self.unit = unit  # by which `adopt` finds it again: "busd-worker-….service", or "pid 123"
        self.log = log  # where it prints to: a file, or "journal, unit busd-worker-….service"
        self.limits: dict[str, str] = {}  # those really in force, by name
        self.pid: int | None = None  # None between two runs, and after the last
        self._reports = _Reports()

    def reports(self) -> AsyncIterator[Report]:
        """Return what happens to it, in order; ends after `failed` or `stopped`."""
        return self._reports

    def report(self, report: Report) -> None:
        """Add a report for whoever reads them."""
        self._reports.put(report)

    @property
    def ended(self) -> anyio.Event:
        """Set by the last report."""
        return self._reports.ended

    @abstractmethod
    async def stop(self) -> None:
        """End it with everything it started: ask first, kill after `stop_seconds`."""

    @abstractmethod
    def owns(self, pid: int | None, socket: int | None) -> bool | None:
        """Return whether a connection is of one of its processes; None while nobody can tell.

        The kernel knows the pid at the other end of a Unix socket, and the inode of that of a
        loopback connection.
        """

    @abstractmethod
    async def last_lines(self, count: int = 20) -> list[str]:
        """Return the last lines it wrote to stderr (and stdout)."""


class _Reports:
    """Reports that wait to be read; the oldest are lost if nobody does, the last one never."""

    def __init__(self) -> None:
        self._unread: deque[Report] = deque(maxlen=_MAX_UNREAD)
        self._news = anyio.Event()
        self.ended = anyio.Event()  # nothing comes after `failed` or `stopped`

    def put(self, report: Report) -> None:
        if self.ended.is_set():
            return
        self._unread.append(report)
        if report.kind in ("failed", "stopped"):
            self.ended.set()
        self._news.set()

    def __aiter__(self) -> _Reports:
        return self

    async def __anext__(self) -> Report:
        """Return the next report, to one reader, until after the last."""
        while not self._unread:
            if self.ended.is_set():
                raise StopAsyncIteration
            self._news = anyio.Event()
            await self._news.wait()
        return self._unread.popleft()


class Spawner(Protocol):
    """Starts processes; entered before the first one, left after the last."""

    name: str

    async def __aenter__(self) -> Spawner: ...
    async def __aexit__(self, *problem: object) -> None:
        """End all processes, or leave them to the next daemon, as configured."""

    async def start(self, launch: Launch) -> SupervisedProcess:
        """Start a process; raise SpawnFailed saying why if the program cannot be started."""

    async def adopt(self, name: str, unit: str) -> SupervisedProcess | None:
        """Adopt a process that an earlier daemon started; return None if it has ended.

        Without a unit it is not known whether the process was ever started.
        """

    async def reload(self, settings: SupervisorSettings) -> list[str]:
        """Apply other settings; return those that do not hold for all processes, and why."""


# What a process gets of the daemon's own environment; all else may be a secret of the daemon's.
_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "PYTHONPATH")


def environment_of(launch: Launch) -> dict[str, str]:
    """Return the whole environment that a process is started with."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**inherited, **launch.environment}
