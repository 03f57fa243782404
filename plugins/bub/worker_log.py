"""What a worker has printed, line by line; each has an id, after which reading can go on."""

from __future__ import annotations

import os
from pathlib import Path

import anyio.to_thread
import msgspec

from busd.keeper.folders import open_file, open_folder

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
    try:
        with open_folder(folder.parent) as workspace, open_folder(folder.name, workspace) as logs:
            lines = [line for name in _FILES for line in _lines_of(name, logs)]
    except OSError:
        return []
    if after is None:
        return lines[-count:]
    ids = [line.id for line in lines]
    # One that is not there any more: the log has moved on, so all of it is new.
    begin = ids.index(after) + 1 if after in ids else 0
    return lines[begin : begin + count]


def _lines_of(name: str, logs: int) -> list[LogLine]:
    """Give the whole lines at the end of a file; an id is the file's number and where it ends."""
    try:
        file = open_file(name, logs, os.O_RDONLY)
    except OSError:
        return []
    try:
        found = os.fstat(file)
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
