"""The output of a worker: log files of bounded size, and its last lines in memory."""

from __future__ import annotations

import os
import stat
from collections import deque
from contextlib import suppress
from pathlib import Path

from busd.keeper.folders import make_folder, open_file, open_folder

FILE_NAME = "worker.log"
OLD_FILE_NAME = "worker.log.1"
MAX_FILE_BYTES = 1024 * 1024
_TAIL_LINES = 20
LINE_CHARACTERS = 500


class WorkerLog:
    """Two files in a folder: a full one replaces the older one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: int | None = None
        self._size = 0

    def write(self, chunk: bytes) -> None:
        """Write a chunk; if the disk is full it is lost, and the worker is not affected."""
        try:
            if self._file is None or self._size + len(chunk) > MAX_FILE_BYTES:
                self._turn(len(chunk))
            assert self._file is not None
            self._size += os.write(self._file, chunk)
        except OSError:
            self.close()  # the folder may exist again for the next chunk

    def _turn(self, wanted_bytes: int) -> None:
        """Open the file; rotate it first if there is not enough room in it."""
        with open_folder(self._folder.parent) as workspace:
            make_folder(self._folder.name, workspace)
            with open_folder(self._folder.name, workspace) as folder:
                if _size(folder) + wanted_bytes > MAX_FILE_BYTES:
                    os.replace(FILE_NAME, OLD_FILE_NAME, src_dir_fd=folder, dst_dir_fd=folder)
                self.close()
                self._file = open_file(FILE_NAME, folder, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._size = os.fstat(self._file).st_size

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Tail:
    """The last lines of a stream of bytes."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_TAIL_LINES)
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._lines.extend(_text(line) for line in lines[-_TAIL_LINES:])
        self._rest = rest[-4 * LINE_CHARACTERS :]

    def lines(self) -> list[str]:
        return [*self._lines, *([_text(self._rest)] if self._rest else [])][-_TAIL_LINES:]


def make_log(workspace: Path) -> None:
    """Create an empty log if there is none; raise OSError if its path is not a regular file."""
    with open_folder(workspace) as above:
        make_folder("logs", above)
        with open_folder("logs", above) as logs:
            os.close(open_file(FILE_NAME, logs, os.O_WRONLY | os.O_CREAT))


def trim_log(folder: Path) -> bool:
    """Truncate a log that another process appends to; return True if it was too large.

    Its last part is moved to the older file. Between two calls it may exceed its size.
    """
    try:
        with open_folder(folder.parent) as workspace, open_folder(folder.name, workspace) as logs:
            if _size(logs) <= MAX_FILE_BYTES:
                return False
            _trim(logs)
    except FileNotFoundError:
        return False
    except OSError:
        pass  # a link, or the disk is full: the next call tries again
    return True


def _trim(logs: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(OLD_FILE_NAME, dir_fd=logs)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL  # never into a link
    file = open_file(OLD_FILE_NAME, logs, flags)
    try:
        os.write(file, _read_end(FILE_NAME, logs))
    finally:
        os.close(file)
    file = open_file(FILE_NAME, logs, os.O_WRONLY)
    try:
        os.ftruncate(file, 0)
    finally:
        os.close(file)


def read_last_lines(folder: Path, count: int) -> list[str]:
    """Return the last lines of the log in a folder; none if there is no log."""
    try:
        with open_folder(folder.parent) as workspace, open_folder(folder.name, workspace) as logs:
            kept = b"".join(_read_end(name, logs) for name in (OLD_FILE_NAME, FILE_NAME))
    except OSError:
        return []
    return [_text(line) for line in kept.splitlines()[-count:]] if count > 0 else []


def _size(logs: int) -> int:
    """Return the size of the log; 0 if it is missing or not a regular file."""
    try:
        found = os.stat(FILE_NAME, dir_fd=logs, follow_symlinks=False)
    except FileNotFoundError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _read_end(name: str, logs: int) -> bytes:
    try:
        file = open_file(name, logs, os.O_RDONLY)
    except OSError:
        return b""
    try:
        size = os.fstat(file).st_size
        length = min(size, MAX_FILE_BYTES)  # read() allocates this much first
        return os.pread(file, length, size - length)
    finally:
        os.close(file)


def _text(line: bytes) -> str:
    return line.decode(errors="replace")[:LINE_CHARACTERS]
