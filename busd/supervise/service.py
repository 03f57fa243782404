"""A process that the settings declare: started, watched, and started again when it must be.

| from | event | to |
| --- | --- | --- |
| `disabled` `stopped` `failed` | wanted | `starting` |
| `starting` | it has joined the bus | `running` |
| `starting` `running` | it ended and will be started again | `waiting` |
| `waiting` | it was started again | `starting` |
| `starting` `running` `waiting` | it ended too often, or cannot be started | `failed` |
| any | not wanted any more, or the bus stops | `disabled` or `stopped` |
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import anyio
import anyio.to_thread

from busd.errors import ConfigError
from busd.keeper.folders import make_folder, open_folder, replace_file
from busd.keeper.launch import Launch
from busd.supervise.spawners import Spawners
from busd.supervise.worker import SpawnFailed, SupervisedProcess

ServiceState = Literal["disabled", "starting", "running", "waiting", "failed", "stopped"]
_PLACES = ("CONFIGURATION_DIRECTORY", "XDG_CONFIG_HOME")
_MAX_REASON = 300
_LAST_LINES = 3


class WantedService(NamedTuple):
    """What the settings say of a process."""

    basis: object  # it is restarted when this is another one: what it depends on
    launch: Launch
    files: dict[str, bytes] = {}  # noqa: RUF012 - never modified; 0600, in its directory
    obstacle: str = ""  # why it cannot be started


class Service:
    """One such process; `noun` begins the names of its log events: `gateway.started`."""

    def __init__(
        self,
        noun: str,
        spawners: Spawners,
        start_soon: Callable[..., object],
        log: Any,  # as in structlog
        is_present: Callable[[], bool],  # whether a peer of its name is on the bus
    ) -> None:
        self._noun = noun
        self._is_present = is_present
        self._spawners = spawners
        self._start_soon = start_soon
        self._log = log
        self._process: SupervisedProcess | None = None
        self._basis: object = None
        self._is_changing = anyio.Lock()
        self._has_moved = anyio.Event()  # since somebody waits for it
        self.state: ServiceState = "disabled"
        self.reason = ""  # why it ended last, or why it cannot start
        self.restarts = 0
        self.log = ""  # where it printed to last, as `LogReader` takes it

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def apply(self, wanted: WantedService | None, *, is_anew: bool = False) -> None:
        """Start, restart or stop it, so that it runs as wanted, or not at all.

        One that runs with the same basis already is left alone, unless it is wanted anew.
        """
        async with self._is_changing:
            is_same = wanted is not None and wanted.basis == self._basis
            if is_same and self._process is not None and not is_anew:
                return
            await self._end()
            self._basis = wanted.basis if wanted else None
            if wanted is None:
                self._move("disabled")
            else:
                await self._start(wanted)

    async def _start(self, wanted: WantedService) -> None:
        self.reason, self.restarts = "", 0
        self._move("starting")
        try:
            if wanted.obstacle:
                raise SpawnFailed(wanted.obstacle)
            await anyio.to_thread.run_sync(_write_files, wanted)
            spawner = await self._spawners.get("auto")
            self._process = await spawner.start(wanted.launch)
        except OSError as problem:
            self._fail(f"its settings cannot be written: {problem.strerror}")
        except (SpawnFailed, ConfigError) as problem:
            self._fail(str(problem))
        else:
            self.log = self._process.log
            self._log.info(f"{self._noun}.started", pid=self.pid)
            self._start_soon(self._watch, self._process)

    async def _watch(self, process: SupervisedProcess) -> None:
        async for report in process.reports():
            if process is not self._process:
                return
            if report.kind == "restarted":
                self.restarts += 1
                # It may be there already: the report of its start comes another way.
                self._move("running" if self._is_present() else "starting")
            elif report.kind == "exited":
                self.reason = report.reason[:_MAX_REASON]
                self._move("waiting")
                self._log.warning(f"{self._noun}.exited", reason=self.reason)
            else:
                self._process = None
                lines = " | ".join(report.last_lines[-_LAST_LINES:])
                if report.kind == "failed":
                    self._fail(f"{report.reason}: {lines}" if lines else report.reason)
                else:
                    self.reason = report.reason
                    self._move("stopped")

    def joined(self) -> None:
        """Note that a peer of its name has joined the bus."""
        if self.state == "starting":
            self._move("running")

    async def wait_until_started(self, seconds: float) -> None:
        """Wait until it runs, has failed or was ended, or the time is up."""
        with anyio.move_on_after(seconds):
            while self.state in ("starting", "waiting"):
                await self._has_moved.wait()

    def _move(self, state: ServiceState) -> None:
        self.state = state
        self._has_moved.set()
        self._has_moved = anyio.Event()

    def _fail(self, reason: str) -> None:
        self.reason = reason[:_MAX_REASON]
        self._move("failed")
        self._log.error(f"{self._noun}.failed", reason=self.reason)

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.stop()
            self._move("stopped")

    async def close(self) -> None:
        """End it for good: the bus stops."""
        async with self._is_changing:
            await self._end()


def _write_files(wanted: WantedService) -> None:
    directory = wanted.launch.directory
    make_folder(directory.parent)
    make_folder(directory)
    with open_folder(directory) as folder:
        for name, content in wanted.files.items():
            replace_file(name, folder, content)


def configuration_places() -> dict[str, str]:
    """Return the variables by which a process finds the plugins and files that we have found."""
    return {name: os.environ[name] for name in _PLACES if name in os.environ}
