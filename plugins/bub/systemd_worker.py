"""A worker that is a unit of systemd."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from anyio import to_thread

from busd.keeper.log import FILE_NAME, LINE_CHARACTERS, read_last_lines, trim_log
from busd_plugins.bub.inbox import Inbox
from busd_plugins.bub.journal import IN_JOURNAL, Journal
from busd_plugins.bub.sockets import has_socket, members_of
from busd_plugins.bub.spawner import Report
from busd_plugins.bub.systemd_unit import Ending, UnitFiles


class SystemdWorker:
    """A worker that is a unit."""

    def __init__(
        self,
        client_id: str,
        unit: str,
        files: UnitFiles,
        logs: Path,
        end: End,
        journal: Journal | None,
    ) -> None:
        self.client_id = client_id
        self.unit = unit
        self.log = f"{IN_JOURNAL}{unit}" if journal else str(logs / FILE_NAME)
        self.control_group = ""
        self.guard = ""  # the unit that it is bound to
        self.limits: dict[str, str] = {}
        self.stop_seconds = 5.0
        self.files = files
        self.logs = logs
        self.inbox = Inbox()
        self.last_ending: Ending | None = None
        self.is_down = False  # between two runs
        self.is_stopping = False
        self.is_flooding = False  # it prints more than its log can hold
        self.journal = journal
        self._end = end
        self._pid: int | None = None

    @property
    def pid(self) -> int | None:
        return self._pid

    @pid.setter
    def pid(self, pid: int | None) -> None:
        self._pid = pid or None

    def reports(self) -> AsyncIterator[Report]:
        return self.inbox

    def owns(self, pid: int | None, socket: int | None) -> bool | None:
        if not self.control_group:
            return None
        if pid is not None:
            return is_in_group(pid, self.control_group)
        return socket is not None and has_socket(members_of(self.control_group), socket)

    def on_ending(self, ending: Ending, last_lines: tuple[str, ...]) -> None:
        """A run has ended; what comes next is up to systemd."""
        if self.is_down:  # it was started again, and that was over before anybody looked
            self.inbox.put(Report("restarted"))
        self.pid, self.is_down, self.last_ending = None, True, ending
        if ending.code != "exited" or ending.status != "0":
            self.inbox.put(Report("exited", ending.reason, last_lines))

    async def stop(self) -> None:
        if self.is_stopping:
            await self.inbox.ended.wait()
        elif not self.inbox.ended.is_set():
            await self._end(self)

    async def last_lines(self, count: int = 20) -> list[str]:
        if self.journal is None:
            return await to_thread.run_sync(read_last_lines, self.logs, count)
        await self.journal.settle()
        return [line.text[:LINE_CHARACTERS] for line in await self.journal.read(self.unit, count)]


def is_in_group(pid: int, control_group: str) -> bool:
    """Tell whether a process is in a control group, or in one within it."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return False
    return any(f"{control_group}/" in f"{line}/" for line in lines)


End = Callable[[SystemdWorker], Awaitable[None]]


def look_at_files(workers: list[SystemdWorker]) -> list[tuple[SystemdWorker, list[Ending]]]:
    """Give the workers of which runs have ended; their logs are kept small on the way."""
    found = []
    for worker in workers:
        worker.is_flooding = worker.journal is None and trim_log(worker.logs)
        endings = worker.files.new_endings()
        if endings:
            found.append((worker, endings))
    return found
