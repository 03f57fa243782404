"""Real processes for the tests of the spawners: told apart by a mark, and waited for."""

from __future__ import annotations

import os
import select
import uuid
from pathlib import Path

import anyio
from anyio import to_thread

from tests.daemons import PATIENCE_SECONDS

MARK = "BUSD_TEST_MARK"
LAST_MOMENT_SECONDS = 3.0


class Told:
    """A pipe by its name: workers write lines into it, a test waits for them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "told"
        self.mark = uuid.uuid4().hex
        os.mkfifo(self.path)
        self._file = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        self._heard = b""

    @property
    def environment(self) -> dict[str, str]:
        return {"TOLD": str(self.path), MARK: self.mark}

    async def next_line(self) -> str:
        """Return the next line that a worker has written."""
        return await to_thread.run_sync(self._next_line)

    async def next_pid(self) -> int:
        return int(await self.next_line())

    def _next_line(self) -> str:
        while b"\n" not in self._heard:
            readable, _, _ = select.select([self._file], [], [], PATIENCE_SECONDS)
            assert readable, "no worker said anything"
            self._heard += os.read(self._file, 65_536)
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode()

    def marked(self) -> list[int]:
        """Return the processes that still run and were started with this test's mark."""
        entry = f"{MARK}={self.mark}".encode()
        pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
        return [pid for pid in pids if is_alive(pid) and entry in environment_of(pid)]

    def left_behind(self) -> list[int]:
        """Return those that stay; what systemd runs after a worker has its mark for a moment."""
        while pids := self.marked():
            for pid in pids:
                if not has_ended(pid, LAST_MOMENT_SECONDS):
                    return pids
        return []

    def close(self) -> None:
        os.close(self._file)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be reaped does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return fields[0] not in (b"Z", b"X")


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if is_alive(pid)]


def environment_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


async def wait_for_end(pid: int) -> None:
    """Wait until a process, child or not, has ended."""
    await to_thread.run_sync(_wait_for_end, pid)


def _wait_for_end(pid: int) -> None:
    assert has_ended(pid, PATIENCE_SECONDS), f"{pid} is still there"


def has_ended(pid: int, seconds: float) -> bool:
    """Tell whether a process ends in time."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        readable, _, _ = select.select([process], [], [], seconds)
        return bool(readable)
    finally:
        os.close(process)


def patience() -> anyio.CancelScope:
    """Return a test that hangs an end."""
    return anyio.CancelScope(deadline=anyio.current_time() + PATIENCE_SECONDS)
