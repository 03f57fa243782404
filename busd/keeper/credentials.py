"""Secrets for a worker: copied into a folder that only its user can read, removed at its end."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

MAX_CREDENTIAL_BYTES = 1024 * 1024
FOLDER = "credentials"


class NoCredential(Exception):
    """A secret cannot be read or copied; the message contains its name and the reason."""


def copy_credentials(folder: Path, credentials: dict[str, str]) -> None:
    """Copy each secret into a file of its own in a new folder; raise NoCredential."""
    try:
        remove_credentials(folder)
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700)
        _copy(folder, credentials)
    except OSError as problem:
        raise NoCredential(f"credentials cannot be copied: {problem.strerror}") from None


def _copy(folder: Path, credentials: dict[str, str]) -> None:
    for name, source in credentials.items():
        if not name or "/" in name or name in (".", "..") or "\0" in name:
            raise NoCredential(f"credential {name!r}: a plain file name is needed")
        try:
            secret = _read_secret(source)
        except (OSError, ValueError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else str(problem)
            raise NoCredential(f"credential {name}: {source}: {reason}") from None
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
        try:
            if os.write(file, secret) < len(secret):
                raise NoCredential(f"credential {name}: cannot be copied: the disk is full")
        finally:
            os.close(file)


def _read_secret(source: str) -> bytes:
    file = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("no file")
        if found.st_size > MAX_CREDENTIAL_BYTES:
            raise ValueError(f"larger than {MAX_CREDENTIAL_BYTES} bytes")
        return os.read(file, found.st_size)
    finally:
        os.close(file)


def remove_credentials(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
