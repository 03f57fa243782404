"""The keeper's program: `python -m busd.keeper STATE_DIRECTORY`.

It exits as soon as the keeper listens on `keeper.sock` in the state directory. Two processes
remain: the keeper, and its parent, the reaper. The daemon runs it in isolated mode, see
`busd/supervise/keeper_link.py`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

from busd.keeper.lock import take_over
from busd.keeper.process import SOCKET, Keeper
from busd.keeper.reaper import become_reaper
from busd.keeper.tree import adopt_orphans, state_id_of

LOG = "keeper.log"
_READY = "ready"
_MAX_INHERITED_FILE = 65_536


def main() -> None:
    """Start a keeper for a state directory; exit with the reason if it cannot serve."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m busd.keeper STATE_DIRECTORY")
    state = Path(sys.argv[1]).absolute()
    os.closerange(3, _MAX_INHERITED_FILE)  # some event loops leak theirs into child processes
    reading, writing = os.pipe()
    if os.fork() != 0:
        os.close(writing)
        answer = os.read(reading, 1000).decode(errors="replace")  # when it listens or ends
        sys.exit(0 if answer == _READY else answer or "it ended at once")
    os.close(reading)
    os.setsid()
    os.umask(0o077)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which workers would inherit
    try:
        state_id = state_id_of(state)
        lock = take_over(state)
        os.chdir(state)  # the path of a socket has at most 107 bytes
        _leave_terminal(state)
        keeper = os.fork()
        if keeper != 0:
            become_reaper(keeper, state_id, lock)
        adopt_orphans()
        listener = _listen(state)
    except OSError as problem:
        os.write(writing, str(problem).encode()[:1000])
        os._exit(1)
    os.write(writing, _READY.encode())
    os.close(writing)
    try:
        Keeper(state, state_id, listener, lock).run()
    finally:
        (state / SOCKET).unlink(missing_ok=True)
        os._exit(0)  # the reaper cleans up, also when we are killed


def _listen(state: Path) -> socket.socket:
    """Listen for the daemon; the kernel reports the pid of the calling process to it."""
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


if __name__ == "__main__":
    main()
