"""The init process of a worker: its parent, which everything it starts stays below.

A process for each worker, forked by the keeper, between the two. It adopts orphans, reports the
worker's end, and ends itself when nothing is left below it: that is how the keeper knows. When the
keeper ends first, it kills all that is below it.
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
    """A worker that runs."""

    init: int  # pids
    worker: int
    limits: dict[str, str]
    output: int  # files to read from
    errors: int
    reports: int  # the worker's exit code, once it has ended


def start_worker(
    launch: Launch,
    group: ControlGroup,
    environment: dict[str, str],
    usual_files: tuple[int, int],
    lock: int,
) -> Started:
    """Start a worker below a new init process, which holds the lock, too; raise CannotStart."""
    files: list[int] = []
    try:
        for _ in range(3):
            files += os.pipe()
        gc.freeze()  # so that less of what is shared with the child is copied
        keeper = os.getpid()
        init = os.fork()
    except OSError as problem:
        _close(files)
        raise CannotStart(f"cannot start a process: {problem.strerror}") from None
    if init == 0:
        _Init(keeper, files[1::2], lock).run(launch, group, environment, usual_files)
    _close(files[1::2])
    output, errors, reports = files[::2]
    said = _read_report(reports)
    if "pid" not in said:
        _close(files[::2])
        raise CannotStart(said.get("error", _ENDED_AT_ONCE))
    return Started(init, said["pid"], said["limits"], output, errors, reports)


def _read_report(reports: int) -> dict[str, Any]:
    """Wait for the first line: the program runs, or cannot."""
    heard = b""
    while not heard.endswith(b"\n"):
        byte = os.read(reports, 1)  # no more: the next line, its exit, is for later
        if not byte:
            return {}
        heard += byte
    said: dict[str, Any] = json.loads(heard)
    return said


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)


class _Init:
    """The process itself; it never returns to what the keeper was doing."""

    def __init__(self, keeper: int, files: list[int], lock: int) -> None:
        self._keeper = keeper
        self._lock = lock  # no other keeper starts before we are done
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
        except BaseException as problem:  # nothing of the keeper's may run here
            print(f"init of {launch.name}: {problem!r}", file=sys.stderr, flush=True)
        finally:
            os._exit(1)

    def _prepare(self) -> tuple[int, int]:
        """Let go of all that is the keeper's; return what tells of its end, and of signals."""
        signal.set_wakeup_fd(-1)
        kept = {0, 1, 2, self._output, self._errors, self._reports, self._lock}
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
            if int(name) not in kept:
                try:
                    os.close(int(name))
                except OSError:
                    pass  # the one by which we look
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
            signal.signal(number, lambda *_: None)  # not SIG_IGN: the worker would inherit that
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
        """Let go of children that have ended; return whether there are others."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._worker:
                self._report({"exit": os.waitstatus_to_exitcode(status)})

    def _report(self, said: dict[str, object]) -> None:
        try:
            os.write(self._reports, json.dumps(said).encode() + b"\n")
        except OSError:
            pass  # the keeper is gone, which we hear of next
