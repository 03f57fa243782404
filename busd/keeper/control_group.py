"""Control groups (version 2) for workers, where we may create them, with or without systemd.

A process cannot leave its group, and `cgroup.kill` kills all processes of a group at once, so that
nothing can fork faster than it is killed. Where no group can be created, the process tree is used.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_DELEGATED = "user.delegate"  # the attribute by which systemd marks a group that we may divide
_UNITS = (".service", ".scope", ".slice")


class ControlGroup:
    """A group of processes; without a path, all methods do nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def make_inner(self, name: str) -> ControlGroup:
        """Create a group within this one; return one without a path if that is impossible."""
        if self._path is None:
            return ControlGroup(None)
        try:
            inner = self._path / name
            inner.mkdir(exist_ok=True)
        except OSError:
            return ControlGroup(None)
        return ControlGroup(inner)

    @property
    def can_be_entered(self) -> bool:
        return self._path is not None and os.access(self._path / "cgroup.procs", os.W_OK)

    def enter(self) -> None:
        """Move this process, and so all its future children, into the group."""
        if self._path is not None:
            try:
                _write(self._path / "cgroup.procs", b"0")
            except OSError:
                pass  # not permitted; the process tree is used instead

    def kill(self) -> None:
        """Kill all processes of the group and of those within it."""
        if self._path is None:
            return
        try:
            _write(self._path / "cgroup.kill", b"1")
        except OSError:  # before Linux 5.14, or the group is gone
            for pid in self._pids():
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass

    def end(self, patience_seconds: float = 5.0) -> None:
        """Kill all processes of the group, wait for their end, and remove the group."""
        give_up_at = time.monotonic() + patience_seconds
        self.kill()
        while self.has_processes and time.monotonic() < give_up_at:
            time.sleep(0.01)  # the kernel takes a moment, and no event reports the end
            self.kill()
        self.remove()

    @property
    def has_processes(self) -> bool:
        """True while a process runs in the group, or in one within it."""
        if self._path is None:
            return False
        try:
            return "populated 1" in (self._path / "cgroup.events").read_text()
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the group and those within it, as far as they are empty."""
        if self._path is not None:
            for folder, _, _ in os.walk(self._path, topdown=False):
                try:
                    os.rmdir(folder)  # noqa: PTH106 - os.walk returns strings
                except OSError:
                    pass  # a process is in it, or it is gone

    def remove_outer(self) -> None:
        """Remove the enclosing group, if this was the last one in it."""
        if self._path is not None:
            try:
                self._path.parent.rmdir()
            except OSError:
                pass  # others are in it

    def _pids(self) -> list[int]:
        assert self._path is not None
        found: list[int] = []
        for file in self._path.rglob("cgroup.procs"):
            try:
                found += map(int, file.read_text().split())
            except OSError:
                pass
        return found


def open_group(state_id: str) -> ControlGroup:
    """Return the group of a state directory's workers, below our own; create it if missing."""
    own = _own_group()
    if own is None or not _is_ours(own):
        return ControlGroup(None)
    return ControlGroup(own).make_inner(f"busd-workers-{state_id}")


def _is_ours(group: Path) -> bool:
    """Return whether we may divide a group: systemd owns those of units without delegation."""
    if not os.access(group / "cgroup.procs", os.W_OK):
        return False
    folders = [group, *group.parents]
    if not any(folder.name.endswith(_UNITS) for folder in folders):
        return True
    return any(_is_delegated(folder) for folder in folders)


def _is_delegated(group: Path) -> bool:
    try:
        return os.getxattr(group, _DELEGATED) == b"1"
    except OSError:
        return False


def _own_group() -> Path | None:
    """Return the folder of our own group in the mounted hierarchy of version 2."""
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    own = next((line[3:] for line in groups if line.startswith("0::")), "")
    for line in mounts:
        fields, _, kind = line.partition(" - ")
        root, mounted_at = fields.split()[3:5]
        if kind.startswith("cgroup2 ") and f"{own}/".startswith(f"{root.rstrip('/')}/"):
            path = Path(mounted_at) / own[len(root.rstrip("/")) :].lstrip("/")
            return path if path.is_dir() else None
    return None


def _write(file: Path, text: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)
