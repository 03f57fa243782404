"""The lock of a state directory: one keeper at a time, which first ends leftover processes."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from busd.keeper.credentials import FOLDER, remove_credentials
from busd.keeper.reaper import end_remaining
from busd.keeper.tree import state_id_of

LOCK = "keeper.lock"
_LOCK_SECONDS = 10.0  # for a reaper to end what a killed keeper left running


def take_over(state: Path) -> int:
    """Wait for the previous keeper, end its leftover processes; return the lock's descriptor."""
    lock = _lock(state)
    _clear(state)
    return lock


def end_remains(state: Path) -> None:
    """End what a killed keeper left running; do nothing while a keeper runs."""
    give_up_at = time.monotonic() + _LOCK_SECONDS
    lock = _try_lock(state)
    while lock is None:
        if time.monotonic() > give_up_at:
            return
        time.sleep(0.01)  # the kernel closes the files of a dead process one after the other
        lock = _try_lock(state)
    try:
        _clear(state)
    finally:
        os.close(lock)


def _lock(state: Path, how: int = 0) -> int:
    """Lock the state directory for as long as the returned descriptor is open."""
    file = os.open(state / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | how)
    except BlockingIOError:
        os.close(file)
        raise
    return file


def _try_lock(state: Path) -> int | None:
    try:
        return _lock(state, fcntl.LOCK_NB)
    except BlockingIOError:
        return None


def _clear(state: Path) -> None:
    end_remaining(state_id_of(state))
    remove_credentials(state / FOLDER)
