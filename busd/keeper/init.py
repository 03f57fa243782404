"""The init process of a worker: its parent, and the ancestor of everything it starts.

The keeper forks one for each worker, and the worker is its child. It adopts orphans, reports the
exit of the worker, and exits itself when it has no descendants left: this is how the keeper
detects the end of the process tree. If the keeper ends first, it kills all its descendants.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
from typing import Any, NamedTuple, NoReturn

from busd.keeper.control_group import ControlGroup
from busd.keeper.launch import Launch
from busd.keeper.start import CannotStart, limits_of, start_process
from busd.keeper.tree import adopt_orphans, end_descendants

_ENDED_AT_ONCE = "the process that watches over it ended at once"


class Started(NamedTuple):
    """A running worker."""

    init: int  # pids
    worker: int
    limits: dict[str, str]
    output: int  # descriptors to read from
    errors: int
    reports: int  # the worker's exit code, once it has ended


def start_worker(
    launch: Launch,
    group: ControlGroup,
    environment: dict[str, str],
    usual_files: tuple[int, int],
    lock: int,
) -> Started:
    """Start a worker under a new init process, which holds the lock, too; raise CannotStart."""
    files: list[int] = []
    try:
        for _ in range(3):
            files += os.pipe()
        gc.freeze()  # fewer pages that are shared with the child are copied
        keeper = os.getpid()
        init = os.fork()
    except OSError as problem:
        _close(files)
        raise CannotStart(f"cannot start a process: {problem.strerror}") from None
    if init == 0:
        _Init(keeper, files[1::2], lock).run(launch, group, environment, usual_files)
    _close(files[1::2])
    output, errors, reports = files[::2]
    report = _read_report(reports)
    if "pid" not in report:
        _close(files[::2])
        raise CannotStart(report.get("error", _ENDED_AT_ONCE))
    return Started(init, report["pid"], report["limits"], output, errors, reports)


def _read_report(reports: int) -> dict[str, Any]:
    """Wait for the first line, which reports whether the program was started."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(reports, 1)  # not the next line, which reports its exit and is read later
        if not byte:
            return {}
        line += byte
    report: dict[str, Any] = json.loads(line)
    return report


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)


class _Init:
    """The process itself; never returns to the code of the keeper."""

    def __init__(self, keeper: int, files: list[int], lock: int) -> None:
        self._keeper = keeper
        self._lock = lock  # no other keeper starts before we have ended
        self._output, self._errors, self._reports = files
        self._worker = 0

    def run(
        self,
        launch: Launch,
        group: ControlGroup,
        environment: dict[str, str],
        usual_files: tuple[int, int],
    ) -> NoReturn:
        try:
            gc.disable()
            watched, woken = self._prepare()
            self._start(launch, group, environment, usual_files)
            self._serve(watched, woken, group)
        except BaseException as problem:  # the keeper's code must not continue here
            print(f"init of {launch.name}: {problem!r}", file=sys.stderr, flush=True)
        finally:
            os._exit(1)

    def _prepare(self) -> tuple[int, int]:
        """Release the keeper's resources; return the descriptors for its end and for signals."""
        signal.set_wakeup_fd(-1)
        kept = {0, 1, 2, self._output, self._errors, self._reports, self._lock}
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
            if int(name) not in kept:
                try:
                    os.close(int(name))
                except OSError:
                    pass  # the descriptor of the listing itself
        os.setsid()
        adopt_orphans()
        watched = os.pidfd_open(self._keeper)
        if os.getppid() != self._keeper:
            os._exit(1)
        woken, wakes = os.pipe()
        for end in (woken, wakes):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)  # not SIG_IGN, which the worker would inherit
        return watched, woken

    def _start(
        self,
        launch: Launch,
        group: ControlGroup,
        environment: dict[str, str],
        usual_files: tuple[int, int],
    ) -> None:
        try:
            process = start_process(
                launch, group, environment, usual_files, self._output, self._errors
            )
        except CannotStart as problem:
            self._report({"error": str(problem)})
            os._exit(1)
        process.returncode = 0  # we reap it, not subprocess
        self._worker = process.pid
        _close([self._output, self._errors])
        self._report({"pid": process.pid, "limits": limits_of(process.pid, launch)})

    def _serve(self, watched: int, woken: int, group: ControlGroup) -> None:
        poll = select.poll()
        poll.register(watched, select.POLLIN)
        poll.register(woken, select.POLLIN)
        while self._reap():
            ready = [file for file, _ in poll.poll()]
            if watched in ready:
                group.kill()
                end_descendants(os.getpid())
                group.end()
                group.remove_outer()
                os._exit(0)
            try:
                os.read(woken, 4096)
            except BlockingIOError:
                pass
        os._exit(0)

    def _reap(self) -> bool:
        """Reap children that have ended; return whether any are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._worker:
                self._report({"exit": os.waitstatus_to_exitcode(status)})

    def _report(self, report: dict[str, object]) -> None:
        try:
            os.write(self._reports, json.dumps(report).encode() + b"\n")
        except OSError:
            pass  # the keeper has ended, which `_serve` detects next
