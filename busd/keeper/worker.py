"""One worker and its supervision: start, exit, restart after a delay, give up."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from busd.keeper.control_group import ControlGroup
from busd.keeper.credentials import NoCredential, copy_credentials, remove_credentials
from busd.keeper.init import Started, start_worker
from busd.keeper.launch import Launch
from busd.keeper.log import Tail, WorkerLog
from busd.keeper.start import CannotStart
from busd.keeper.tree import STATE_ID, Process, signal_each, signal_group

if TYPE_CHECKING:
    from busd.keeper.process import Keeper

BAD_CONFIGURATION = 78  # EX_CONFIG: the exit code of a worker that must not be restarted
LONG_RUN_SECONDS = 60.0  # after this, earlier failures no longer count
MAX_BACK_OFF_SECONDS = 30.0
_INIT_SECONDS = 1.0  # for an init process to exit after its descendants were killed
KILL_PATIENCE_SECONDS = 10.0  # a process in uninterruptible sleep cannot be killed
_CHUNK_BYTES = 65_536
_BYTES_PER_SECOND = 1024 * 1024  # of output; a worker that prints more is blocked


class KeeperProcess:
    """A worker, from the request to start it until its final end."""

    def __init__(self, keeper: Keeper, launch: Launch) -> None:
        self.launch = launch
        self.name = launch.name
        self.pid: int | None = None
        self.limits: dict[str, str] = {}
        self.is_stopping = False
        self.is_over = False
        self.kill_at: float | None = None  # set while its process tree is being ended
        self.init: int | None = None  # the pid of its init process, while there is one
        self._keeper = keeper
        self._started: Started | None = None
        self._group = ControlGroup(None)
        self._session = 0
        self._credentials = Path()
        self._failures = 0
        self._started_at = 0.0
        self._run_seconds = 0.0
        self._has_asked_all = False
        self._exit_code = 0
        self._log = WorkerLog(launch.directory / "logs")
        self._errors = Tail()
        self._output = Tail()
        self._pipes: dict[int, Tail] = {}
        self._budget = _BYTES_PER_SECOND
        self._budget_of = 0.0

    @property
    def last_lines(self) -> list[str]:
        return self._errors.lines() or self._output.lines()

    # -- start ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it; raise CannotStart or NoCredential."""
        serial = self._keeper.next_serial()
        self._credentials = self._keeper.credentials_folder(serial)
        self._errors, self._output = Tail(), Tail()
        environment = {**self.launch.environment, STATE_ID: self._keeper.state_id}
        group = self._keeper.group.make_inner(str(serial))
        try:
            if self.launch.credentials:
                copy_credentials(self._credentials, self.launch.credentials)
                environment["CREDENTIALS_DIRECTORY"] = str(self._credentials)
            started = start_worker(
                self.launch, group, environment, self._keeper.usual_files, self._keeper.lock
            )
        except (CannotStart, NoCredential):
            remove_credentials(self._credentials)
            group.remove()
            raise
        self._started, self._group = started, group
        self.limits = started.limits
        self.init = started.init
        self.pid = self._session = started.worker
        self._started_at = time.monotonic()
        self._has_asked_all = False
        for pipe, tail in ((started.output, self._output), (started.errors, self._errors)):
            os.set_blocking(pipe, False)
            self._pipes[pipe] = tail
            self._watch(pipe)
        self._keeper.watch(started.reports, self._read_exit)

    def _start_again(self) -> None:
        if self.is_over or self.is_stopping:
            return
        try:
            self.start()
        except (CannotStart, NoCredential) as problem:
            self._errors.feed(f"{problem}\n".encode())
            self._failed_once(str(problem))
        else:
            self._keeper.report(self, "restarted")

    # -- what it prints ------------------------------------------------------------------------

    def _watch(self, pipe: int) -> None:
        if pipe in self._pipes:
            self._keeper.watch(pipe, lambda: self._read(pipe))

    def _read(self, pipe: int) -> None:
        """Log its output; stop watching at the end, or for a while if it prints too much."""
        if self._is_overspent():
            self._keeper.unwatch(pipe)
            self._keeper.after(1.0, lambda: self._watch(pipe))
        elif not self._keep(pipe):
            self._keeper.unwatch(pipe)
            del self._pipes[pipe]

    def _is_overspent(self) -> bool:
        now = time.monotonic()
        if now - self._budget_of >= 1.0:
            self._budget, self._budget_of = _BYTES_PER_SECOND, now
        return self._budget <= 0

    def _keep(self, pipe: int) -> bool:
        """Read and log a chunk; return False at the end."""
        try:
            chunk = os.read(pipe, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        self._budget -= len(chunk)
        self._pipes[pipe].feed(chunk)
        if chunk:
            self._log.write(chunk)
        return bool(chunk)

    def _close_pipes(self) -> None:
        for pipe in self._pipes:
            self._keeper.unwatch(pipe)
            self._keep(pipe)  # its last output
        self._pipes.clear()
        self._log.close()
        assert self._started is not None
        self._keeper.unwatch(self._started.reports)
        for file in (self._started.output, self._started.errors, self._started.reports):
            os.close(file)

    # -- end -----------------------------------------------------------------------------------

    def stop(self, stop_seconds: float | None = None) -> None:
        """Send SIGTERM, and kill it later. A second call can only shorten the time."""
        seconds = self.launch.stop_seconds if stop_seconds is None else stop_seconds
        deadline = time.monotonic() + seconds
        is_first = not self.is_stopping
        self.is_stopping = True
        if self._started is None:  # it waits for its next start
            return self._finish("stopped")
        self.kill_at = deadline if self.kill_at is None else min(self.kill_at, deadline)
        if is_first and self.pid is not None:
            signal_group(self._session, signal.SIGTERM)
        self._keeper.after(seconds, self._keeper.sweep_soon)
        return None

    def _read_exit(self) -> None:
        """Read its exit code, or detect that its init process was killed before reporting it."""
        assert self._started is not None
        report = os.read(self._started.reports, 4096)
        self._keeper.unwatch(self._started.reports)
        if self.pid is not None:
            self._on_exit(json.loads(report)["exit"] if report else -signal.SIGKILL)

    def _on_exit(self, exit_code: int) -> None:
        """Handle its exit: first end everything that it has started."""
        self._exit_code = exit_code
        self._run_seconds = time.monotonic() - self._started_at
        self.pid = None
        if not self.is_stopping:
            self.kill_at = time.monotonic()
            signal_group(self._session, signal.SIGKILL)
        self._keeper.sweep_soon()

    def on_init_exit(self) -> None:
        """Handle the exit of its init process: no descendants are left, or it was killed."""
        if self.pid is not None:
            self._read_exit()
        self.init = None
        self._keeper.sweep_soon()

    def sweep(self, remaining: list[Process]) -> bool:
        """Kill the rest of its process tree when its time is up; return True if none is left.

        The init process exits after its last descendant. One that does not, because it received
        SIGSTOP, is killed: then the remaining processes become the keeper's own children.
        """
        assert self.kill_at is not None
        late = time.monotonic() - self.kill_at
        if late >= 0:
            if any(process.session == self._session for process in remaining):
                signal_group(self._session, signal.SIGKILL)
            self._group.kill()
            signal_each(remaining, signal.SIGKILL)
        elif remaining and not self._has_asked_all:
            self._has_asked_all = True
            signal_each(remaining, signal.SIGTERM)
        if late >= _INIT_SECONDS and self.init is not None:
            os.kill(self.init, signal.SIGKILL)  # our child: its pid is not reused until we reap it
        is_empty = self.init is None and not remaining and not self._group.has_processes
        if self.pid is not None or (not is_empty and late < KILL_PATIENCE_SECONDS):
            return False
        self._on_gone([process.pid for process in remaining])
        return True

    def _on_gone(self, immortal: list[int]) -> None:
        self.kill_at = None
        self._close_pipes()
        self._started = None
        self._group.remove()
        remove_credentials(self._credentials)
        reason = reason_of(self._exit_code)
        if immortal:
            reason += f"; cannot be killed: {', '.join(map(str, immortal))}"
        if self.is_stopping or self._exit_code == 0:
            self._finish("stopped", reason)
        else:
            self._failed_once(reason)

    def _failed_once(self, reason: str) -> None:
        """Restart it after a delay, or give up."""
        if self._run_seconds > LONG_RUN_SECONDS:
            self._failures = 0
        self._failures += 1
        self._run_seconds = 0.0
        self._keeper.report(self, "exited", reason)
        is_hopeless = self._exit_code == BAD_CONFIGURATION
        if is_hopeless or self._failures > self.launch.restarts:
            return self._finish("failed", reason)
        seconds = self.launch.restart_seconds * 2.0 ** min(self._failures - 1, 16)
        self._keeper.after(min(seconds, MAX_BACK_OFF_SECONDS), self._start_again)
        return None

    def _finish(self, kind: str, reason: str = "") -> None:
        self.is_over = True
        self._keeper.report(self, kind, reason)
        self._keeper.forget(self)


def reason_of(exit_code: int) -> str:
    """Return a description of a worker's exit."""
    if exit_code == BAD_CONFIGURATION:
        return f"exit code {exit_code}, bad configuration"
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"killed by signal {-exit_code}"
