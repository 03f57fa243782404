"""Too much of everything: how to make it, and how to see that the bus bears it."""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.daemons import Daemon
from tests.wire_peers import Peer

MIB = 1024 * 1024


@contextmanager
def bounded_memory(daemon: Daemon, growth_bytes: int) -> Iterator[None]:
    """Make sure that the daemon never holds this much more than at the beginning."""
    daemon.forget_peak()
    before = daemon.peak_bytes()
    yield
    growth = daemon.peak_bytes() - before
    assert growth < growth_bytes, f"{growth / MIB:.0f} MiB more than before"


def flood(sock: socket.socket, data: bytes) -> int:
    """Send this again and again until the other side takes no more; give how much it took."""
    sock.settimeout(0.5)
    sent, waiting = 0, memoryview(data)
    try:
        while sent < 256 * MIB:
            count = sock.send(waiting)
            sent += count
            waiting = waiting[count:] or memoryview(data)
    except (TimeoutError, OSError):
        return sent
    raise AssertionError("the bus takes whatever it gets")


def pour(sock: socket.socket, data: bytes, times: int) -> None:
    """Send this so many times, or until the other side closes the connection."""
    try:
        for _ in range(times):
            sock.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        pass


def until(is_so: Callable[[], bool], witness: Peer) -> None:
    """Wait until something is so, with the pings of a witness as the clock."""
    for _ in range(20_000):
        if is_so():
            return
        witness.expect_nothing()
    raise AssertionError("it never came to be")


def raise_file_limit(number: int) -> int:
    """Allow as many open files as the system lets us; give how many of `number` we can open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(number, hard - 1000)
