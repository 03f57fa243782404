"""What a worker has printed, line by line; each has an id, after which reading can go on."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import anyio.to_thread
import msgspec

_FILES = ("worker.log.1", "worker.log")  # older, newer
_MAX_BYTES = 1024 * 1024  # read of each
MAX_CHARACTERS = 4_000  # of a line


class LogLine(msgspec.Struct):
    id: str
    text: str


async def read_log(workspace: Path, count: int, after: str | None) -> list[LogLine]:
    """Give the last lines of a workspace's log, or the first ones after a line seen already."""
    return await anyio.to_thread.run_sync(_read, workspace / "logs", count, after)


def _read(folder: Path, count: int, after: str | None) -> list[LogLine]:
    lines = [line for name in _FILES for line in _lines_of(folder / name)]
    if after is None:
        return lines[-count:]
    ids = [line.id for line in lines]
    # One that is not there any more: the log has moved on, so all of it is new.
    begin = ids.index(after) + 1 if after in ids else 0
    return lines[begin : begin + count]


def _lines_of(path: Path) -> list[LogLine]:
    """Give the whole lines at the end of a file; an id is the file's number and where it ends."""
    try:
        # The worker may have put anything in its place: a link or a pipe is not followed.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            return []
        place = max(0, found.st_size - _MAX_BYTES)
        chunk = os.pread(file, _MAX_BYTES, place)
    finally:
        os.close(file)
    lines: list[LogLine] = []
    for line in chunk.splitlines(keepends=True):
        place += len(line)
        if line.endswith(b"\n"):
            text = line.decode(errors="replace").rstrip("\r\n")[:MAX_CHARACTERS]
            lines.append(LogLine(f"{found.st_ino}-{place}", text))
    return lines
