"""Access to folders that a worker can change: by directory descriptors, without following links.

A worker owns its workspace and may replace any folder or file in it by a link at any moment. So a
check of a path says nothing about what is opened there next (TOCTOU).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def open_folder(path: str | Path, above: int | None = None) -> Iterator[int]:
    """Open a folder, relative to `above` if given; raise OSError if it is a link."""
    folder = os.open(path, _FOLDER, dir_fd=above)
    try:
        yield folder
    finally:
        os.close(folder)


def make_folder(name: str | Path, above: int | None = None) -> bool:
    """Create a folder that only we can access; return whether it was missing.

    Raise FileExistsError if there is a link or a file at its path.
    """
    try:
        os.mkdir(name, 0o700, dir_fd=above)
    except FileExistsError:
        found = os.stat(name, dir_fd=above, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode):
            raise
        return False
    return True


def open_file(name: str, folder: int, flags: int) -> int:
    """Open a regular file of a folder; raise OSError for a link, a pipe or anything else."""
    safe = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(name, flags | safe, 0o600, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{name} is not a regular file")
    return file


def replace_file(name: str, folder: int, content: bytes) -> None:
    """Replace a file of a folder atomically, or raise OSError and leave it unchanged."""
    new = f".{name}.new"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new, dir_fd=folder)
        with os.fdopen(open_file(new, folder, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(content)
        os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new, dir_fd=folder)
        raise
