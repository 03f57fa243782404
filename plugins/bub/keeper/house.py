"""The keeper's house: how it comes to own a state directory, and leaves it empty behind."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import time
from pathlib import Path

from .credentials import FOLDER, remove_credentials
from .process import Keeper
from .reaper import become_reaper, end_remaining
from .tree import adopt_orphans, mark_of

SOCKET = "keeper.sock"
LOCK = "keeper.lock"
LOG = "keeper.log"
_READY = "ready"
_LOCK_SECONDS = 10.0  # for a reaper to end what a killed keeper left
_MAX_INHERITED_FILE = 65_536


def main() -> None:
    """Leave the daemon, take over the state directory, and serve; returns in the daemon's child.

    Two processes come of it: the keeper, and its parent, the reaper.
    """
    state = Path(sys.argv[1])
    os.closerange(3, _MAX_INHERITED_FILE)  # some loops leave theirs open in what they start
    reading, writing = os.pipe()
    if os.fork() != 0:
        os.close(writing)
        word = os.read(reading, 1000).decode(errors="replace")  # once it listens, or its end
        sys.exit(0 if word == _READY else word or "it ended at once")
    os.close(reading)
    os.setsid()
    os.umask(0o077)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # not SIG_IGN: workers would inherit that
    try:
        mark = mark_of(state)
        lock = _move_in(state, mark)
        keeper = os.fork()
        if keeper != 0:
            become_reaper(keeper, mark, lock)
        adopt_orphans()
        listener = _listen(state)
    except OSError as problem:
        os.write(writing, str(problem).encode()[:1000])
        os._exit(1)
    os.write(writing, _READY.encode())
    os.close(writing)
    try:
        Keeper(state, mark, listener, lock).run()
    finally:
        (state / SOCKET).unlink(missing_ok=True)
        os._exit(0)  # the reaper does the rest, also when we are killed


def end_remains(state: Path) -> None:
    """End what a keeper left behind that was killed; never while one lives."""
    give_up_at = time.monotonic() + _LOCK_SECONDS
    lock = _try_lock(state)
    while lock is None:
        if time.monotonic() > give_up_at:
            return
        time.sleep(0.01)  # the kernel closes a dead process's files one after the other
        lock = _try_lock(state)
    try:
        _clear(state, mark_of(state))
    finally:
        os.close(lock)


def _lock(state: Path, how: int = 0) -> int:
    """Be the only one for this state directory, for as long as the file is open."""
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


def _clear(state: Path, mark: str) -> None:
    end_remaining(mark)
    remove_credentials(state / FOLDER)


def _move_in(state: Path, mark: str) -> int:
    """Wait until the keeper before has ended, and end what it left; return the lock."""
    lock = _lock(state)
    _clear(state, mark)
    os.chdir(state)  # the path of a socket has at most 107 bytes
    _leave_terminal(state)
    return lock


def _listen(state: Path) -> socket.socket:
    """Listen for the daemon, which sees the pid of whoever calls this."""
    (state / SOCKET).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(SOCKET)
    listener.listen()
    listener.setblocking(False)
    return listener


def _leave_terminal(state: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    log = os.open(state / LOG, flags, 0o600)
    nothing = os.open(os.devnull, os.O_RDWR)
    for target, source in ((0, nothing), (1, log), (2, log)):
        os.dup2(source, target)
