"""The watch over workers that are units: what becomes of each is found out and reported."""

from __future__ import annotations

from typing import Literal

import anyio
from anyio import to_thread

from busd_plugins.bub.spawner import Report
from busd_plugins.bub.systemctl import ManagerSilent, ServiceManager
from busd_plugins.bub.systemd_guard import Guards
from busd_plugins.bub.systemd_unit import Ending
from busd_plugins.bub.systemd_worker import SystemdWorker, look_at_files

SHOWN = ("MainPID", "ControlGroup", "WorkingDirectory", "StandardOutput", "BindsTo")
_LOOK_SECONDS = 0.25  # at the files in which systemd notes how a worker ended
_FLOOD_LOOK_SECONDS = 0.02  # while a worker prints without end: its log is cut each time
_ASK_LOOKS = 4  # every so many looks the manager is asked, too: one question for all units
_SILENT_LOOKS = 40


class SystemdWatch:
    """The workers that run, by client id."""

    def __init__(
        self,
        manager: ServiceManager,
        guards: Guards,
        prefix: str,
        workers: dict[str, SystemdWorker],
    ) -> None:
        self.workers = workers
        self._manager = manager
        self._guards = guards
        self._prefix = prefix  # of all their units

    async def run(self) -> None:
        """Report what happens to the workers, from what systemd notes and what it says."""
        looks = silent = 0
        while True:
            is_flooded = any(worker.is_flooding for worker in self.workers.values())
            await anyio.sleep(_FLOOD_LOOK_SECONDS if is_flooded else _LOOK_SECONDS)
            if not self.workers:
                continue
            looks += 1
            has_news = await self._read_endings()
            if not has_news and looks % _ASK_LOOKS:
                continue
            silent = 0 if await self._look() else silent + 1
            if silent * _ASK_LOOKS > _SILENT_LOOKS:
                self._give_up()

    async def _read_endings(self) -> bool:
        """Report the runs that have ended; True if the manager has to be asked what comes next."""
        watched = self._watched()
        found = await to_thread.run_sync(look_at_files, watched)
        async with anyio.create_task_group() as tasks:
            for worker, endings in found:
                tasks.start_soon(_report_endings, worker, endings)
        return any(worker.is_down for worker in watched)

    async def _look(self) -> bool:
        """Ask for the state of all units; False if the manager does not answer."""
        watched = self._watched()
        try:
            states = await self._manager.states(f"{self._prefix}*.service")
            for worker in watched:
                await self._compare(worker, states.get(worker.unit))
        except ManagerSilent:
            return False
        return True

    def _watched(self) -> list[SystemdWorker]:
        """Give the workers that nobody is stopping."""
        return [worker for worker in self.workers.values() if not worker.is_stopping]

    async def _compare(self, worker: SystemdWorker, state: str | None) -> None:
        if worker.inbox.ended.is_set() or worker.is_stopping:
            return
        if state == "active/running" and worker.is_down:
            shown = await self._manager.show(worker.unit, SHOWN)
            worker.pid = int(shown.get("MainPID") or 0)
            worker.is_down = worker.pid is None
            if not worker.is_down:
                worker.inbox.put(Report("restarted", pid=worker.pid))
        elif not is_alive(state):
            await self._read_endings()
            await self._conclude(worker)

    async def _conclude(self, worker: SystemdWorker) -> None:
        """A unit is no more: say whether it ended well."""
        ending = worker.last_ending
        if worker.guard and await self._guards.has_ended(worker.guard):
            reason = f"systemd ended it with its guard, {worker.guard}"
            self.end(worker, "failed", reason, tuple(await worker.last_lines()))
        elif ending is not None and ending.is_clean:
            self.end(worker, "stopped", ending.reason)
        else:
            reason = "its unit is gone" if ending is None else ending.reason
            self.end(worker, "failed", reason, tuple(await worker.last_lines()))

    def _give_up(self) -> None:
        for worker in list(self.workers.values()):
            self.end(worker, "failed", "the service manager does not answer")

    def end(
        self,
        worker: SystemdWorker,
        kind: Literal["failed", "stopped"],
        reason: str,
        lines: tuple[str, ...] = (),
    ) -> None:
        """Report the last of a worker, and watch it no more."""
        if self.workers.get(worker.client_id) is worker:
            del self.workers[worker.client_id]
        worker.pid = None
        worker.files.remove()
        worker.inbox.put(Report(kind, reason, lines))


async def _report_endings(worker: SystemdWorker, endings: list[Ending]) -> None:
    lines = tuple(await worker.last_lines())
    for ending in endings:
        worker.on_ending(ending, lines)


def is_alive(state: str | None) -> bool:
    """Tell whether a unit runs or will by itself."""
    return state is not None and state.partition("/")[0] not in ("inactive", "failed")
