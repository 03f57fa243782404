"""Files in a workspace: readable by their owner alone, written as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from busd.errors import ConfigError
from busd.wire.plain_file import write_plain_file


def make_workspace(folder: Path) -> Path:
    """Create a workspace unless it exists; raise ConfigError if that fails."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise ConfigError(f"{folder} cannot be a workspace: {problem.strerror}") from None
    return folder


def read_private(file: Path, max_bytes: int) -> bytes:
    """Return the last `max_bytes` of a file, nothing if there is none."""
    try:
        with file.open("rb") as opened:
            size = _seek_last(opened, max_bytes)
            return opened.read(size)  # not max_bytes: it would be allocated before a byte is read
    except FileNotFoundError:
        return b""


def read_lines(file: Path, max_bytes: int) -> Iterator[bytes]:
    """Yield the lines in the last `max_bytes` of a file, one in memory at a time."""
    try:
        with file.open("rb") as opened:
            _seek_last(opened, max_bytes)
            yield from opened
    except FileNotFoundError:
        return


def _seek_last(opened: BinaryIO, max_bytes: int) -> int:
    """Seek to the last `max_bytes` of a file; return how many bytes follow."""
    size = opened.seek(0, os.SEEK_END)
    return size - opened.seek(max(0, size - max_bytes))


def write_private(file: Path, content: bytes) -> None:
    """Replace a file atomically; create its folder if needed."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_plain_file(file, content)


def append_private(file: Path, content: bytes) -> int:
    """Append to a file; return its size. Raise OSError unless all of it was written."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        before = os.fstat(descriptor).st_size
        written = os.write(descriptor, content)
        if written < len(content):
            os.ftruncate(descriptor, before)  # a disk that is full keeps no half of a line
            raise OSError(f"only {written} of {len(content)} bytes could be written")
        return before + written
    finally:
        os.close(descriptor)
