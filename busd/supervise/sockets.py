"""Which processes hold a socket: how a worker is known that connects over loopback TCP.

Only so many processes and files are looked at, because the worker decides how many it has, and the
bus waits.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

_MAX_PROCESSES = 64
_MAX_FILES = 2_048  # of all processes together: 5 ms


def has_socket(pids: Iterable[int], inode: int) -> bool:
    """Return whether one of these processes has the socket with this inode open."""
    wanted = f"socket:[{inode}]"
    files = islice(_files(islice(pids, _MAX_PROCESSES)), _MAX_FILES)
    return any(_link_of(file) == wanted for file in files)


def tree_of(root: int) -> list[int]:
    """Return a process and those below it, the nearest first."""
    found = [root]
    for pid in found:  # it grows while we go through it
        if len(found) >= _MAX_PROCESSES:
            break
        found += children_of(pid)
    return found


def children_of(pid: int) -> list[int]:
    """Return the children of a process, whichever of its threads started them."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task")[:_MAX_PROCESSES]:  # noqa: PTH208
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    except OSError:
        pass  # it has ended
    return found


def members_of(control_group: str) -> list[int]:
    """Return the processes of a control group that systemd made, and of those within it."""
    found: list[int] = []
    for folder in _mounted(control_group):
        for file in islice(folder.rglob("cgroup.procs"), _MAX_PROCESSES):
            try:
                found += map(int, file.read_text().split())
            except OSError:
                pass  # it is gone
    return found


def _mounted(control_group: str) -> Iterator[Path]:
    """Yield where systemd's hierarchy has a group: version 2, or the one by its name."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 ") or (kind.startswith("cgroup ") and "name=systemd" in kind):
            root, mounted_at = fields.split()[3:5]
            yield Path(mounted_at) / control_group.removeprefix(root).lstrip("/")


def _files(pids: Iterable[int]) -> Iterator[str]:
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        try:
            numbers = os.listdir(folder)  # noqa: PTH208 - a Path for each costs more
        except OSError:
            continue  # it has ended, or does not let us look
        yield from (f"{folder}/{number}" for number in numbers)


def _link_of(file: str) -> str:
    try:
        return os.readlink(file)  # noqa: PTH115 - a Path for each costs more
    except OSError:
        return ""
