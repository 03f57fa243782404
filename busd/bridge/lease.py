"""Leases: one process at a time for a secret, and for the folder of a bridge.

A lease is a lock on a file; the kernel releases it when its process ends, however that happens.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from busd.bridge.secrets import Secret
from busd.errors import ConfigError
from busd.plugin.file_safety import find_danger, find_danger_above
from busd.wire.places import state_directory

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_MAX_PID_BYTES = 20


def make_folder(folder: Path) -> Path:
    """Create a folder for this user only, if needed; raise ConfigError if it is not safe."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise ConfigError(f"cannot use the folder {folder}: {problem.strerror}") from None
    if danger := find_danger(folder, is_deep=False) or find_danger_above(folder):
        raise ConfigError(f"cannot use the folder {folder}: {danger}")
    return folder


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Use a folder alone; raise ConfigError if another process does."""
    with _locked(make_folder(folder) / "bridge.lock", f"the folder {folder}"):
        yield


@contextmanager
def lease_secret(secret: Secret | str, folder: Path | None = None) -> Iterator[None]:
    """Use a secret alone, among the processes of this user; raise ConfigError if another does."""
    value = secret.value if isinstance(secret, Secret) else secret
    what = f"this {secret.name}" if isinstance(secret, Secret) else "this token"
    name = sha256(value.encode()).hexdigest()[:16]
    with _locked(make_folder(folder or state_directory() / "leases") / name, what):
        yield


@contextmanager
def _locked(file: Path, what: str) -> Iterator[None]:
    try:
        descriptor = os.open(file, _FLAGS, 0o600)
    except OSError as problem:
        is_link = problem.errno == errno.ELOOP
        why = "it is a symbolic link; remove it" if is_link else problem.strerror
        raise ConfigError(f"cannot use {file}: {why}") from None
    try:
        _lock(descriptor, what)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, what: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(descriptor, _MAX_PID_BYTES, 0).decode(errors="replace").strip()
        who = f"process {pid}" if pid.isdecimal() else "another process"
        raise ConfigError(f"{who} uses {what} already; stop it first") from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
