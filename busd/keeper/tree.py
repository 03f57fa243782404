"""The process tree of a worker: list its processes, and end all of them.

Every worker has a parent of its own, its init process (`init`), which adopts orphans
(`PR_SET_CHILD_SUBREAPER`). So a process that changes its session, clears its environment or loses
its parent stays a descendant of that init process: the kernel assigns no other parent.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

STATE_ID = "BUSD_WORKERS_OF"  # in the environment of workers: which state directory they belong to
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER
_PROCESS_CONTROL = ctypes.CDLL(None, use_errno=True).prctl
_MAX_DEPTH = 1_000
_MAX_ENVIRONMENT_BYTES = 4 * 1024 * 1024


class Process(NamedTuple):
    """A living process, as reported by the kernel."""

    pid: int
    parent: int
    session: int
    started: bytes  # together with the pid, identifies a process uniquely


def state_id_of(state: Path) -> str:
    """Return the id that all workers of a state directory share."""
    found = state.stat()
    text = f"{state.resolve()}:{found.st_dev}:{found.st_ino}:{os.getuid()}"
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent ends."""
    _PROCESS_CONTROL(_ADOPT_ORPHANS, 1, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends for any reason."""
    _PROCESS_CONTROL(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


def living() -> list[Process]:
    """Return all running processes; raise OSError if /proc cannot be read now."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - creating a Path for each costs more than reading it
        if name.isdigit():
            process = read_process(int(name))
            if process is not None:
                found.append(process)
    return found


def read_process(pid: int) -> Process | None:
    """Return a process as reported by the kernel; None if it has ended."""
    try:
        # Its name, in parentheses, may contain anything; plain numbers follow.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    is_dead = fields[0] in (b"Z", b"X")
    return None if is_dead else Process(pid, int(fields[1]), int(fields[3]), fields[19])


def descendants(processes: list[Process], root: int) -> list[Process]:
    """Return the descendants of a process, parents first."""
    children: dict[int, list[Process]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    found = list(children.get(root, ()))
    for process in found:  # it grows during the iteration
        found += children.get(process.pid, ())
    return found


def is_descendant(pid: int, root: int) -> bool:
    """Return whether a process is a descendant of another one, or the same."""
    for _ in range(_MAX_DEPTH):
        if pid == root:
            return True
        process = read_process(pid)
        if process is None or process.parent <= 1:
            return False
        pid = process.parent
    return False


def signal_group(pid: int, number: int) -> None:
    """Signal a whole process group at once, so that no member can escape by forking."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # it has ended, or its id belongs to another user now


def signal_each(processes: Iterable[Process], number: int) -> None:
    """Signal processes, but never one that has reused the pid of another."""
    for process in processes:
        try:
            handle = os.pidfd_open(process.pid)
        except OSError:
            continue  # it has ended
        try:
            now = read_process(process.pid)
            if now is not None and now.started == process.started:
                signal.pidfd_send_signal(handle, number)
        except OSError:
            pass  # it has ended, or its id belongs to another user now
        finally:
            os.close(handle)


def end_descendants(root: int, patience_seconds: float = 5.0) -> list[int]:
    """Kill all descendants of a process; return the pids that could not be killed."""
    return _kill_all(lambda processes: descendants(processes, root), patience_seconds)


def end_with_state_id(state_id: str, patience_seconds: float = 5.0) -> list[int]:
    """Kill all processes of this user that were started with a state id in their environment."""
    return _kill_all(
        lambda processes: [each for each in processes if _has_state_id(each.pid, state_id)],
        patience_seconds,
    )


def _has_state_id(pid: int, state_id: str) -> bool:
    try:
        if Path(f"/proc/{pid}").stat().st_uid != os.geteuid():
            return False
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - reads a limited size
            environment = file.read(_MAX_ENVIRONMENT_BYTES)
    except OSError:
        return False
    return f"{STATE_ID}={state_id}".encode() in environment.split(b"\0")


def _kill_all(
    choose: Callable[[list[Process]], list[Process]], patience_seconds: float
) -> list[int]:
    give_up_at = time.monotonic() + patience_seconds
    while True:
        remaining = choose(living())
        if not remaining or time.monotonic() > give_up_at:
            return [process.pid for process in remaining]
        signal_each(remaining, signal.SIGKILL)
        reap_children()
        time.sleep(0.01)  # the kernel takes a moment, and no event reports the end


def reap_children() -> None:
    """Reap children that have ended, including adopted orphans."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
