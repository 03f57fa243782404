"""Workers that are units of systemd, and the watch over them: what becomes of each is reported."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Literal

import anyio
from anyio import to_thread

from busd.keeper.log import FILE_NAME, LINE_CHARACTERS, read_last_lines, trim_log
from busd.supervise.logs import IN_JOURNAL, SystemdJournal
from busd.supervise.sockets import has_socket, members_of
from busd.supervise.systemctl import ManagerSilent, ServiceManager
from busd.supervise.systemd_guard import Guards
from busd.supervise.systemd_unit import Ending, UnitFiles
from busd.supervise.worker import Report, SupervisedProcess

SHOWN = ("MainPID", "ControlGroup", "WorkingDirectory", "StandardOutput", "BindsTo")
_LOOK_SECONDS = 0.25  # at the files in which systemd notes how a worker ended
_FLOOD_LOOK_SECONDS = 0.02  # while a worker prints without end: its log is cut each time
_ASK_LOOKS = 4  # every so many looks the manager is asked, too: one question for all units
_SILENT_LOOKS = 40


class SystemdWorker(SupervisedProcess):
    """A process that is a unit."""

    def __init__(
        self,
        name: str,
        unit: str,
        files: UnitFiles,
        logs: Path,
        end: Callable[[SystemdWorker], Awaitable[None]],
        journal: SystemdJournal | None,
    ) -> None:
        super().__init__(name, unit, f"{IN_JOURNAL}{unit}" if journal else str(logs / FILE_NAME))
        self.control_group = ""
        self.guard = ""  # the unit that it is bound to
        self.stop_seconds = 5.0
        self.files = files
        self.logs = logs
        self.last_ending: Ending | None = None
        self.is_down = False  # between two runs
        self.is_stopping = False
        self.is_flooding = False  # it prints more than its log can hold
        self.journal = journal
        self._end = end

    def owns(self, pid: int | None, socket: int | None) -> bool | None:
        if not self.control_group:
            return None
        if pid is not None:
            return _is_in_group(pid, self.control_group)
        return socket is not None and has_socket(members_of(self.control_group), socket)

    def on_ending(self, ending: Ending, last_lines: tuple[str, ...]) -> None:
        """Report that a run has ended; what comes next is up to systemd."""
        if self.is_down:  # it was started again, and that was over before anybody looked
            self.report(Report("restarted"))
        self.pid, self.is_down, self.last_ending = None, True, ending
        if ending.code != "exited" or ending.status != "0":
            self.report(Report("exited", ending.reason, last_lines))

    async def stop(self) -> None:
        if self.is_stopping:
            await self.ended.wait()
        elif not self.ended.is_set():
            await self._end(self)

    async def last_lines(self, count: int = 20) -> list[str]:
        if self.journal is None:
            return await to_thread.run_sync(read_last_lines, self.logs, count)
        await self.journal.settle()
        return [line.text[:LINE_CHARACTERS] for line in await self.journal.read(self.unit, count)]


class SystemdWatch:
    """The processes that run, by name."""

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
        found = await to_thread.run_sync(_look_at_files, watched)
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
        """Return the workers that nobody is stopping."""
        return [worker for worker in self.workers.values() if not worker.is_stopping]

    async def _compare(self, worker: SystemdWorker, state: str | None) -> None:
        if worker.ended.is_set() or worker.is_stopping:
            return
        if state == "active/running" and worker.is_down:
            shown = await self._manager.show(worker.unit, SHOWN)
            worker.pid = main_pid(shown)
            worker.is_down = worker.pid is None
            if not worker.is_down:
                worker.report(Report("restarted", pid=worker.pid))
        elif not is_alive(state):
            await self._read_endings()
            await self._conclude(worker)

    async def _conclude(self, worker: SystemdWorker) -> None:
        """Report the end of a unit that is gone, and whether it ended well."""
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
        if self.workers.get(worker.name) is worker:
            del self.workers[worker.name]
        worker.pid = None
        worker.files.remove()
        worker.report(Report(kind, reason, lines))


def _look_at_files(workers: list[SystemdWorker]) -> list[tuple[SystemdWorker, list[Ending]]]:
    """Return the workers of which runs have ended; their logs are kept small on the way."""
    found = []
    for worker in workers:
        worker.is_flooding = worker.journal is None and trim_log(worker.logs)
        endings = worker.files.new_endings()
        if endings:
            found.append((worker, endings))
    return found


async def _report_endings(worker: SystemdWorker, endings: list[Ending]) -> None:
    lines = tuple(await worker.last_lines())
    for ending in endings:
        worker.on_ending(ending, lines)


def is_alive(state: str | None) -> bool:
    """Return whether a unit runs or will by itself."""
    return state is not None and state.partition("/")[0] not in ("inactive", "failed")


def main_pid(shown: Mapping[str, str]) -> int | None:
    """Return the pid of a unit's process, as systemd shows it; None while there is none."""
    return int(shown.get("MainPID") or 0) or None


def _is_in_group(pid: int, control_group: str) -> bool:
    """Return whether a process is in a control group, or in one within it."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return False
    return any(f"{control_group}/" in f"{line}/" for line in lines)
