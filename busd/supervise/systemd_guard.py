"""The guard: a unit that ends after the daemon; workers are bound to it, so they end, too.

It does not matter how the daemon ends, nor whether it is a unit itself. Workers that are to be
kept have a guard that waits a while for the next daemon, and then guards that one.
"""

from __future__ import annotations

import os
from itertools import chain, count
from pathlib import Path

import anyio

from busd.supervise.service_manager import ServiceManager
from busd.supervise.systemd_unit import COLLECTED, exec_property
from busd.supervise.worker import SupervisorSettings

_WAIT = "tail --follow --sleep-interval=0.2 --pid"
# $0 names the daemon, $1 is for how long it may be away.
_GUARD = f"""
while pid=$(cat "$0"); do
    {_WAIT} "$pid" /dev/null
    sleep "$1"
    if [ "$(cat "$0")" = "$pid" ]; then exit 0; fi
done
"""


class Guards:
    """The guard of new workers; and those before it, of workers that were started then."""

    def __init__(self, manager: ServiceManager, state_id: str, folder: Path) -> None:
        self._manager = manager
        self._prefix = f"busd-guard-{state_id}"
        self._folder = folder
        self._kind = ""
        self._away_seconds = 0.0  # that the daemon may be away
        self._is_starting = anyio.Lock()
        self.unit = ""  # of the guard that new workers are bound to
        self.units: list[str] = []

    async def start(self, settings: SupervisorSettings) -> None:
        """Start the guard that the settings ask for, or use one that runs; raise ManagerSilent."""
        is_kept = settings.when_bus_stops == "keep"
        self._kind = "keep" if is_kept else str(os.getpid())
        self._away_seconds = settings.adopt_seconds if is_kept else 0.0
        _write_pid(self._pid_file)
        async with self._is_starting:
            for unit in await self._manager.states(f"{self._prefix}*-{self._kind}.service"):
                if not await self.has_ended(unit):
                    return self._use(unit)  # of an earlier daemon, and now of this one
            return await self._run()

    async def revive(self) -> None:
        """Start another guard if this one has ended; raise ManagerSilent."""
        async with self._is_starting:
            if await self.has_ended(self.unit):
                await self._run()

    async def has_ended(self, unit: str) -> bool:
        """Return whether a guard has ended, or is just about to; raise ManagerSilent."""
        shown = await self._manager.show(unit, ("ActiveState", "Job"))
        # While workers that are bound to it end, a guard that was stopped still runs.
        job_id, _ = shown["Job"]
        return bool(shown["ActiveState"] != "active" or job_id)

    def forget(self) -> None:
        """Remove what belongs to guards that were stopped."""
        self._pid_file.unlink(missing_ok=True)

    @property
    def _pid_file(self) -> Path:
        return self._folder / f"{self._prefix}-{self._kind}.pid"

    async def _run(self) -> None:
        known = await self._manager.states(f"{self._prefix}-*.service")
        # Never a name that was used: workers bound to the one before may still be about to end.
        names = (f"{self._prefix}-{n}-{self._kind}.service" for n in count(2))
        first = f"{self._prefix}-{self._kind}.service"
        unit = next(n for n in chain([first], names) if n not in known and n not in self.units)
        command = ["/bin/sh", "-c", _GUARD, str(self._pid_file), f"{self._away_seconds:g}"]
        await self._manager.start_unit(
            unit,
            [
                ("Description", ("s", "ends the workers after the bus")),
                COLLECTED,
                exec_property("ExecStart", command),
            ],
        )
        self._use(unit)

    def _use(self, unit: str) -> None:
        self.unit = unit
        if unit not in self.units:
            self.units.append(unit)


def _write_pid(path: Path) -> None:
    """Write it at once: the guard may look at any time."""
    for other in path.parent.glob("busd-guard-*.pid"):
        if other != path:
            other.unlink()  # of a daemon that was killed
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(f"{os.getpid()}\n")
    new.replace(path)
