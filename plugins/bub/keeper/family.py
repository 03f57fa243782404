"""A worker's family: everything it started, also what tried to get away, and how it is ended.

Each worker gets a mark that its children inherit and cannot lose: a hard limit on real-time CPU
time, far beyond reach, with a number of its own. It stays with a process that changes its session,
clears its environment or loses its parent, which are the other ways of telling.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_MARKED_BIT = 1 << 61
_SERIAL_BITS = 20
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER
_PROCESS_CONTROL = ctypes.CDLL(None, use_errno=True).prctl


class Process(NamedTuple):
    """A living process, as the kernel tells of it."""

    pid: int
    session: int
    mark: int


def household_of(state: Path) -> int:
    """Give the number that the marks of all workers of one state directory share."""
    found = state.stat()
    text = f"{state.resolve()}:{found.st_dev}:{found.st_ino}:{os.getuid()}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:5])


def mark_of(household: int, serial: int) -> int:
    """Give the mark of one run of one worker."""
    return _MARKED_BIT | household << _SERIAL_BITS | serial % (1 << _SERIAL_BITS)


def is_of_household(mark: int, household: int) -> bool:
    return mark >> _SERIAL_BITS == (_MARKED_BIT >> _SERIAL_BITS | household)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent ends."""
    _PROCESS_CONTROL(_ADOPT_ORPHANS, 1, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, however that comes."""
    _PROCESS_CONTROL(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel knew
        os._exit(1)


def wear(mark: int) -> bool:
    """Mark this process and all it will start; False within a limit that another has set."""
    try:
        resource.setrlimit(resource.RLIMIT_RTTIME, (mark, mark))
    except (OSError, ValueError):
        return False
    return True


def has_mark(pid: int, mark: int) -> bool:
    try:
        return resource.prlimit(pid, resource.RLIMIT_RTTIME)[1] == mark
    except (OSError, ValueError):
        return True  # gone already, marked or not


def is_of_family(pid: int, worker: int) -> bool:
    """True if a process has the mark of a worker, or if that has none that could be read."""
    mark = _mark_worn_by(worker)
    return mark is None or _mark_worn_by(pid) == mark


def _mark_worn_by(pid: int) -> int | None:
    try:
        mark = resource.prlimit(pid, resource.RLIMIT_RTTIME)[1]
    except (OSError, ValueError):
        return None
    return mark if mark > 0 and mark & _MARKED_BIT else None


def living() -> list[Process]:
    """Give all processes that still run; raises OSError if the kernel cannot be asked now."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - a Path for each costs more than the look
        if name.isdigit():
            process = _read(int(name))
            if process is not None:
                found.append(process)
    return found


def _read(pid: int) -> Process | None:
    try:
        mark = resource.prlimit(pid, resource.RLIMIT_RTTIME)[1]
    except PermissionError:
        mark = 0  # another user's, or a sandbox without marks
    except (OSError, ValueError):
        return None
    try:
        # Its name, in brackets, may hold anything; what follows are plain numbers.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    is_dead = fields[0] in (b"Z", b"X")
    return None if is_dead else Process(pid, int(fields[3]), mark)


def signal_group(pid: int, number: int) -> None:
    """Signal a process group at once, so that no member can fork its way out."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # it is gone, or another user's by now


def signal_each(processes: list[Process], number: int) -> None:
    for process in processes:
        try:
            os.kill(process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def end_household(household: int, patience_seconds: float = 5.0) -> list[int]:
    """Kill all that a keeper left behind; gives those that could not be killed."""
    return _kill_all(lambda process: is_of_household(process.mark, household), patience_seconds)


def _kill_all(is_meant: Callable[[Process], bool], patience_seconds: float) -> list[int]:
    give_up_at = time.monotonic() + patience_seconds
    while True:
        remaining = [process for process in living() if is_meant(process)]
        if not remaining or time.monotonic() > give_up_at:
            return [process.pid for process in remaining]
        signal_each(remaining, signal.SIGKILL)
        time.sleep(0.01)  # the kernel takes a moment; nothing tells when it is done
