"""Read and replace small regular files; refuse to read anything else.

A pipe would block the reader forever, `/dev/zero` has no end, and a link may point anywhere.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_plain_file(
    path: str | Path, max_bytes: int, *, follow_links: bool = True, dir_fd: int | None = None
) -> bytes:
    """Return the content of a regular file; raise OSError with the reason for anything else."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    if not follow_links:
        flags |= os.O_NOFOLLOW
    try:
        file = os.open(path, flags, dir_fd=dir_fd)
    except ValueError:
        raise OSError(errno.EINVAL, "a path has no NUL character") from None
    except OSError as problem:
        if problem.errno == errno.ELOOP and not follow_links:
            raise OSError(errno.ELOOP, "it is a symbolic link") from None
        raise
    try:
        facts = os.fstat(file)
        if stat.S_ISDIR(facts.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        content = _read(file, max_bytes + 1)
    finally:
        os.close(file)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it has more than {max_bytes} bytes")
    return content


def write_plain_file(
    path: Path, content: bytes, mode: int = 0o600, *, is_synced: bool = False
) -> None:
    """Replace a file atomically, or raise OSError and leave it unchanged.

    With `is_synced` that holds for a power failure, too. A link at the path is replaced, not
    followed.
    """
    # With the pid: another process may replace the same file at the same time.
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)  # of a process that was killed
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if mode != 0o600:
                os.fchmod(descriptor, mode)  # whatever the umask is
            if is_synced:
                os.fsync(descriptor)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def refuse_link(path: Path) -> None:
    """Raise OSError if something other than a regular file exists at the path."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "it is a symbolic link", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def _read(file: int, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    left = max_bytes
    while left and (piece := os.read(file, left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
