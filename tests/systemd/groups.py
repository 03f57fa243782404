"""Control groups for the tests' managers: each has one of its own, and all its units are in it.

A manager names the groups of its units after them, below the group that it is in itself, and ends
all that it finds there when a unit stops; a system's manager even moves whoever else is in its own
group. So two of them in one group would end each other's units, and change what is not theirs.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.daemons import PATIENCE_SECONDS

_MOUNTS = Path("/sys/fs/cgroup")
# Made once more where they are entered: whoever owns a group above may remove empty ones.
_ENTER = """
while [ "$1" != -- ]; do mkdir -p "$1"; echo 0 > "$1/cgroup.procs"; shift; done
shift; exec "$@"
"""


@contextmanager
def open_group(name: str) -> Iterator[list[str]]:
    """Make a group below our own; yields what a command line begins with to run in there.

    That is nothing where we may make none.
    """
    where = _own_group() / f"{name}.slice"  # a slice: whoever looks for a unit looks further inside
    made = {tree / where: tree for tree in _trees() if _can_make(tree / where)}
    entered = [str(group) for group, tree in made.items() if _is_entered(tree)]
    try:
        yield ["sh", "-ec", _ENTER, "sh", *entered, "--"] if entered else []
    finally:
        for group in made:
            _end_all(group)
            _remove(group)


def _own_group() -> Path:
    """Return the group that a manager takes for its own if we start it, relative to its tree."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    groups = {kind: path for _, kind, path in (line.split(":", 2) for line in lines)}
    own = groups.get("", groups.get("name=systemd", "/"))
    return Path(own.removesuffix("/init.scope").lstrip("/"))  # which is where it would go itself


def _trees() -> list[Path]:
    """Return the tree of version 2, or those of version 1: systemd's and one per controller."""
    if not _MOUNTS.is_dir():
        return []
    mounts = [_MOUNTS] if _is_group(_MOUNTS) else sorted(_MOUNTS.iterdir())
    return [tree for tree in mounts if _is_group(tree)]


def _is_group(path: Path) -> bool:
    return (path / "cgroup.procs").exists()


def _can_make(group: Path) -> bool:
    try:
        group.mkdir(parents=True)
    except OSError:  # it is not ours to make, or another name of the tree before
        return False
    controllers = group.parent / "cgroup.controllers"
    for controller in controllers.read_text().split() if controllers.exists() else ():
        try:
            (group.parent / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError:
            pass  # not ours to hand on: limits are not in force then, as the spawner says
    return True


def _is_entered(tree: Path) -> bool:
    """Tell whether systemd finds itself by this tree; in others the group must just exist."""
    return (tree / "cgroup.controllers").exists() or tree == _MOUNTS / "systemd"


def _end_all(group: Path) -> None:
    """End what the manager, which has ended already, can end no more."""
    while pids := [pid for file in group.rglob("cgroup.procs") for pid in _pids_in(file)]:
        for pid in pids:
            _end(pid)


def _pids_in(file: Path) -> list[int]:
    try:
        return [int(line) for line in file.read_text().splitlines()]
    except OSError:
        return []  # the group has just been removed


def _end(pid: int) -> None:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        assert any(select.select([process], [], [], PATIENCE_SECONDS)), f"{pid} does not end"
    finally:
        os.close(process)


def _remove(group: Path) -> None:
    below = [path for path in group.rglob("*") if path.is_dir()]
    for each in [*reversed(below), group]:
        try:
            each.rmdir()
        except FileNotFoundError:
            pass  # the host's own manager tidies up what is empty
