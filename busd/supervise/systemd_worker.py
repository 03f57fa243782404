"""Workers that are units of systemd: the state of each, and what is reported of it.

| state | event | next state |
| --- | --- | --- |
| `RUNNING` | `RUN_ENDED` | `DOWN` |
| `RUNNING` | `STOP_ASKED` | `STOPPING` |
| `RUNNING` | `UNIT_GONE` | `ENDED` |
| `DOWN` | `RUN_ENDED` | `DOWN` |
| `DOWN` | `RUN_BEGAN` | `RUNNING` |
| `DOWN` | `STOP_ASKED` | `STOPPING` |
| `DOWN` | `UNIT_GONE` | `ENDED` |
| `STOPPING` | `UNIT_GONE` | `ENDED` |

A worker that was started begins as `RUNNING`, one that was adopted may begin as `DOWN`.
`DOWN` is between two runs, or after the last while systemd has not given up yet. A run may begin
and end before anybody looks; then `RUN_ENDED` comes while it is `DOWN`. Any other event changes
nothing: while a worker is stopped, or after its end, its runs are of no concern.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from pathlib import Path
from typing import Literal

import structlog
from anyio import to_thread

from busd.keeper.log import FILE_NAME, LINE_CHARACTERS, read_last_lines
from busd.supervise.logs import IN_JOURNAL, SystemdJournal
from busd.supervise.sockets import has_socket, members_of
from busd.supervise.systemd_unit import Ending, UnitFiles
from busd.supervise.worker import Report, SupervisedProcess

log = structlog.get_logger()


class State(Enum):
    RUNNING = auto()
    DOWN = auto()
    STOPPING = auto()
    ENDED = auto()


class Event(Enum):
    RUN_BEGAN = auto()
    RUN_ENDED = auto()
    STOP_ASKED = auto()
    UNIT_GONE = auto()


TRANSITIONS = {
    (State.RUNNING, Event.RUN_ENDED): State.DOWN,
    (State.RUNNING, Event.STOP_ASKED): State.STOPPING,
    (State.RUNNING, Event.UNIT_GONE): State.ENDED,
    (State.DOWN, Event.RUN_ENDED): State.DOWN,
    (State.DOWN, Event.RUN_BEGAN): State.RUNNING,
    (State.DOWN, Event.STOP_ASKED): State.STOPPING,
    (State.DOWN, Event.UNIT_GONE): State.ENDED,
    (State.STOPPING, Event.UNIT_GONE): State.ENDED,
}


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
        state: State,
    ) -> None:
        super().__init__(name, unit, f"{IN_JOURNAL}{unit}" if journal else str(logs / FILE_NAME))
        self.state = state  # changed by `move` only
        self.control_group = ""
        self.guard = ""  # the unit that it is bound to
        self.stop_seconds = 5.0
        self.files = files
        self.logs = logs
        self.last_ending: Ending | None = None
        self.is_flooding = False  # it prints more than its log can hold
        self.journal = journal
        self._end = end

    # -- its state -----------------------------------------------------------------------------

    @property
    def is_down(self) -> bool:
        return self.state is State.DOWN

    @property
    def is_watched(self) -> bool:
        """Whether what happens to its unit is to be reported."""
        return self.state in (State.RUNNING, State.DOWN)

    def move(self, event: Event) -> bool:
        """Change the state as the table says; return False if the event changes nothing."""
        before, after = self.state, TRANSITIONS.get((self.state, event))
        if after is None:
            return False
        self.state = after
        log.debug(
            "worker.moved",
            worker=self.name,
            unit=self.unit,
            event_name=event.name,
            before=before.name,
            after=after.name,
        )
        return True

    def on_ending(self, ending: Ending, last_lines: tuple[str, ...]) -> None:
        """Report that a run has ended; what comes next is up to systemd."""
        was_down = self.is_down
        if not self.move(Event.RUN_ENDED):
            return
        if was_down:  # it was started again, and that was over before anybody looked
            self.report(Report("restarted"))
        self.pid, self.last_ending = None, ending
        if ending.code != "exited" or ending.status != "0":
            self.report(Report("exited", ending.reason, last_lines))

    def on_start(self, pid: int) -> None:
        """Report that systemd has started it again."""
        if self.move(Event.RUN_BEGAN):
            self.pid = pid
            self.report(Report("restarted", pid=pid))

    def on_gone(
        self, kind: Literal["failed", "stopped"], reason: str, lines: tuple[str, ...] = ()
    ) -> None:
        """Report the end of its unit, after which nothing is reported."""
        if self.move(Event.UNIT_GONE):
            self.pid = None
            self.files.remove()
            self.report(Report(kind, reason, lines))

    async def stop(self) -> None:
        if self.move(Event.STOP_ASKED):
            await self._end(self)
        else:
            await self.ended.wait()

    # -- its processes -------------------------------------------------------------------------

    def owns(self, pid: int | None, socket: int | None) -> bool | None:
        if not self.control_group:
            return None
        if pid is not None:
            return _is_in_group(pid, self.control_group)
        return socket is not None and has_socket(members_of(self.control_group), socket)

    async def last_lines(self, count: int = 20) -> list[str]:
        if self.journal is None:
            return await to_thread.run_sync(read_last_lines, self.logs, count)
        await self.journal.settle()
        return [line.text[:LINE_CHARACTERS] for line in await self.journal.read(self.unit, count)]


def _is_in_group(pid: int, control_group: str) -> bool:
    """Return whether a process is in a control group, or in one within it."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return False
    return any(f"{control_group}/" in f"{line}/" for line in lines)
