"""A bystander pair: one sends the other a message every few milliseconds and times each."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from threading import Event, Thread
from typing import Any

from tests.daemons import Daemon
from tests.fairness.floods import Flood
from tests.fairness.storms import Storm, Target, open_storm
from tests.wire_peers import Closed, Peer, connect, join_by

PAUSE_SECONDS = 0.005
_QUIET_SECONDS = 0.5


class Bystanders(Thread):
    """Exchange messages until told to stop; `waits` holds the seconds each way took."""

    def __init__(self, daemon: Daemon, opened: ExitStack) -> None:
        super().__init__(daemon=True)
        self.waits: list[float] = []
        self.enough = Event()
        self._alice = join_by(daemon, "unix", "bystander:a", opened)
        self._bob = join_by(daemon, "unix", "bystander:b", opened)
        for peer in (self._alice, self._bob):
            peer.sock.settimeout(120)

    def run(self) -> None:
        while True:
            started = time.perf_counter()
            request_id = self._alice.send_message("bystander:b")
            message: Any = self._bob.next_message()
            delivered = time.perf_counter()
            self._bob.answer(message, {"success": True})
            self._alice.answer_to(request_id)
            self.waits += [delivered - started, time.perf_counter() - delivered]
            if self.enough.wait(PAUSE_SECONDS):
                return


def measure(daemon: Daemon, flood: Flood | None, quiet_seconds: float = _QUIET_SECONDS) -> Waits:
    """Return how long the bystanders' messages took during a flood, or without one."""
    with ExitStack() as opened:
        pair = Bystanders(daemon, opened)
        pair.start()
        try:
            if flood is None:
                time.sleep(quiet_seconds)
            else:
                run_flood(daemon, flood, opened)
        finally:
            pair.enough.set()
            pair.join(120)
        return Waits(pair.waits)


def measure_storm(daemon: Daemon, storm: Storm, target: Target) -> Waits:
    """Return how long the bystanders' messages took from the strike until all is quiet again."""
    with ExitStack() as opened:
        strike = opened.enter_context(open_storm(target, storm))
        pair = Bystanders(daemon, opened)
        pair.start()
        try:
            strike()
            time.sleep(_QUIET_SECONDS)  # while what the storm left behind is worked off
        finally:
            pair.enough.set()
            pair.join(120)
        return Waits(pair.waits)


class Waits:
    """The times that deliveries took, in seconds."""

    def __init__(self, waits: list[float]) -> None:
        self.count = len(waits)
        in_order = sorted(waits)
        self.median = in_order[len(in_order) // 2]
        self.p99 = in_order[min(len(in_order) * 99 // 100, len(in_order) - 1)]
        self.longest = in_order[-1]


def run_flood(daemon: Daemon, flood: Flood, opened: ExitStack) -> None:
    """Send all of the flood and wait until the bus has worked it off, or has had enough."""
    peer = connect(daemon, flood.transport)
    opened.callback(peer.sock.close)
    if flood.initializes:
        peer.initialize("flooder")
    reader = Thread(target=_read_all, args=(peer.sock,), daemon=True)
    if flood.reads:
        reader.start()
    try:
        peer.sock.settimeout(60 if flood.reads else 2)
        for _ in range(0, flood.total_bytes, len(flood.data)):
            peer.sock.sendall(flood.data)
        peer.sock.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the bus closed the connection, or does not read from who does not read
    if flood.reads:
        reader.join(60)
    else:
        _drain(peer)


def _read_all(sock: socket.socket) -> None:
    """Read, and throw away, whatever the bus answers until it closes."""
    try:
        while sock.recv(262_144):
            pass
    except OSError:
        pass


def _drain(peer: Peer) -> None:
    try:
        while True:
            peer.read_some()
            peer.received.clear()
    except (Closed, OSError):
        pass
