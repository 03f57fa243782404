"""The processes of a keeper, found by what the kernel shows of them."""

from __future__ import annotations

import signal
from pathlib import Path

import anyio

from busd.keeper.tree import read_process
from tests.supervise.processes import is_alive, patience


def keepers(state: Path) -> list[int]:
    """Find the keeper by its state directory, which is its last argument.

    The init processes of workers are forked from it and have the same arguments.
    """
    found = []
    for path in Path("/proc").iterdir():
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(state).encode() in words and b"-c" in words and is_alive(int(path.name)):
            found.append(int(path.name))
    return [pid for pid in found if parent_of(pid) not in found]


def parent_of(pid: int) -> int:
    process = read_process(pid)
    return 0 if process is None else process.parent


async def reaper_of(keeper: int) -> int:
    """Wait until the parent of a keeper is a reaper that waits for its end."""
    with patience():
        while True:
            pid = parent_of(keeper)
            if b"keeper.reaper" in read_proc(pid, "cmdline") and ignores_sigterm(pid):
                return pid
            await anyio.sleep(0.01)  # nothing tells when a process has got that far
    raise AssertionError("the keeper has no reaper")


def ignores_sigterm(pid: int) -> bool:
    rows = (line.split() for line in read_proc(pid, "status").splitlines())
    ignored = next((int(row[1], 16) for row in rows if row[0] == b"SigIgn:"), 0)
    return bool(ignored & 1 << (signal.SIGTERM - 1))


def read_proc(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
