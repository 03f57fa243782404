"""What a worker prints: into files of a bounded size, and its last lines at hand."""

from __future__ import annotations

import os
import stat
from collections import deque
from pathlib import Path

FILE_NAME = "worker.log"
OLD_FILE_NAME = "worker.log.1"
MAX_FILE_BYTES = 1024 * 1024
_TAIL_LINES = 20
LINE_CHARACTERS = 500


class WorkerLog:
    """Two files in a folder: when one is full it takes the place of the older one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: int | None = None
        self._size = 0

    def write(self, chunk: bytes) -> None:
        """Keep a chunk; one that the disk has no room for is lost, and the worker goes on."""
        try:
            if self._file is None or self._size + len(chunk) > MAX_FILE_BYTES:
                self._turn(len(chunk))
            assert self._file is not None
            self._size += os.write(self._file, chunk)
        except OSError:
            self.close()  # the folder may be there again for the next chunk

    def _turn(self, wanted_bytes: int) -> None:
        """Open the file, after making it the older one if there is no room in it."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / FILE_NAME
        if path.exists() and path.stat().st_size + wanted_bytes > MAX_FILE_BYTES:
            path.replace(self._folder / OLD_FILE_NAME)
        self.close()
        # The worker may have put anything in its place: a link or a pipe is not followed.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        self._file = os.open(path, flags | os.O_CLOEXEC, 0o600)
        found = os.fstat(self._file)
        self._size = found.st_size
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise OSError(f"{path} is no file")

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


def trim_log(folder: Path) -> bool:
    """Make room in a log that somebody else appends to; True if there was need.

    What is moved is its last part. It may grow beyond its size until somebody looks.
    """
    path = folder / FILE_NAME
    try:
        if path.is_symlink() or path.stat().st_size <= MAX_FILE_BYTES:
            return False
        (folder / OLD_FILE_NAME).unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC  # never into a link
        file = os.open(folder / OLD_FILE_NAME, flags, 0o600)
        try:
            os.write(file, _read_end(path))
        finally:
            os.close(file)
        os.truncate(path, 0)
    except OSError:
        pass  # no room on the disk even for this: the next look tries again
    return True


def read_last_lines(folder: Path, count: int) -> list[str]:
    """Give the last lines of the log in a folder; none if there is no log."""
    kept = b"".join(_read_end(folder / name) for name in (OLD_FILE_NAME, FILE_NAME))
    return [_text(line) for line in kept.splitlines()[-count:]] if count > 0 else []


def _read_end(path: Path) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            return b""
        size = min(found.st_size, MAX_FILE_BYTES)  # as much is allocated first
        return os.pread(file, size, found.st_size - size)
    finally:
        os.close(file)


def _text(line: bytes) -> str:
    return line.decode(errors="replace")[:LINE_CHARACTERS]
