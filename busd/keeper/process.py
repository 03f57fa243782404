"""The keeper's process: one loop for the daemon's requests, and the workers' exits and output."""

from __future__ import annotations

import heapq
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from busd.keeper.control_group import open_group
from busd.keeper.credentials import FOLDER
from busd.keeper.daemon_side import DaemonSide
from busd.keeper.start import allow_many_files
from busd.keeper.tree import Process, descendants, living, signal_each
from busd.keeper.worker import KeeperProcess

SOCKET = "keeper.sock"
_SWEEP_SECONDS = 0.02
_SLOW_SWEEP_SECONDS = 0.25
_CONNECT_SECONDS = 10.0


class Keeper:
    """Owns all workers of one daemon."""

    def __init__(self, state: Path, state_id: str, listener: socket.socket, lock: int) -> None:
        self.state_id = state_id
        self.lock = lock
        self.group = open_group(state_id)
        self.usual_files = allow_many_files()
        self.workers: dict[str, KeeperProcess] = {}
        self.is_ending = False
        self.when_bus_stops = "stop"
        self.adopt_seconds = 0.0
        self._state = state
        self._selector = selectors.DefaultSelector()
        self._serials = count(int(time.time()))
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_numbers = count()
        self._sweep_seconds: float | None = None
        self._listener = listener
        self._daemon: DaemonSide | None = None
        self._unclaimed: set[str] = set()  # workers that the daemon has not adopted yet
        self._connections = 0  # of daemons so far; timers of earlier ones are ignored

    def run(self) -> None:
        """Serve until no daemon is connected and no worker is left."""
        self._watch_children()
        self.watch(self._listener.fileno(), self._on_connection)
        self.after(_CONNECT_SECONDS, lambda: self._end_unless_connected(0))
        while not (self.is_ending and not self.workers):
            for key, events in self._selector.select(self._until_next()):
                key.data(events)
            self._run_timers()
        if self._daemon is not None:
            self._daemon.close()

    # -- the loop ------------------------------------------------------------------------------

    def watch(self, file: int, on_ready: Callable[[], None]) -> None:
        self.watch_events(file, selectors.EVENT_READ, lambda _: on_ready())

    def watch_events(self, file: int, events: int, on_ready: Callable[[int], None]) -> None:
        self.unwatch(file)
        self._selector.register(file, events, on_ready)

    def unwatch(self, file: int) -> None:
        try:
            self._selector.unregister(file)
        except KeyError:
            pass  # it is no longer watched

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        entry = (time.monotonic() + seconds, next(self._timer_numbers), callback)
        heapq.heappush(self._timers, entry)

    def _until_next(self) -> float | None:
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def _watch_children(self) -> None:
        reading, writing = socket.socketpair()
        reading.setblocking(False)
        writing.setblocking(False)
        signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: None)
        self._wake_ups = (reading, writing)
        self.watch(reading.fileno(), self._on_signal)

    def _on_signal(self) -> None:
        try:
            numbers = self._wake_ups[0].recv(4096)
        except BlockingIOError:
            return
        if signal.SIGTERM in numbers:
            self.end_all()
        self._reap()

    def _reap(self) -> None:
        by_init = {worker.init: worker for worker in self.workers.values()}
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            worker = by_init.get(pid)
            if worker is not None:
                worker.on_init_exit()
            # else it is an orphan of a worker whose init process was killed

    # -- process trees -------------------------------------------------------------------------

    def sweep_soon(self) -> None:
        """Sweep the process trees of workers that are to end, now and at growing intervals."""
        is_planned = self._sweep_seconds is not None
        self._sweep_seconds = _SWEEP_SECONDS
        if not is_planned:
            self.after(0, self._sweep)

    def _sweep(self) -> None:
        now = time.monotonic()
        ending = [
            worker
            for worker in self.workers.values()
            # A worker that still has time to end by itself needs no sweep.
            if worker.kill_at is not None and (worker.pid is None or worker.kill_at <= now)
        ]
        try:
            remaining = self._sweep_trees(ending) if ending else []
        except OSError:
            remaining = ending  # out of file descriptors; treat no worker as ended
        if not remaining:
            self._sweep_seconds = None
            return
        assert self._sweep_seconds is not None
        self.after(self._sweep_seconds, self._sweep)
        self._sweep_seconds = min(2 * self._sweep_seconds, _SLOW_SWEEP_SECONDS)

    def _sweep_trees(self, ending: list[KeeperProcess]) -> list[KeeperProcess]:
        """Kill remaining processes of these workers; return the workers that still have some."""
        processes = living()
        orphans = self._orphans(processes)
        signal_each(orphans, signal.SIGKILL)
        return [
            worker
            for worker in ending
            if not worker.sweep(
                orphans if worker.init is None else descendants(processes, worker.init)
            )
        ]

    def _orphans(self, processes: list[Process]) -> list[Process]:
        """Return children other than init processes: orphans of an init process that was killed."""
        inits = {worker.init for worker in self.workers.values()}
        own = [each for each in processes if each.parent == os.getpid() and each.pid not in inits]
        return own + [each for orphan in own for each in descendants(processes, orphan.pid)]

    def end_all(self, stop_seconds: float | None = None) -> None:
        """End all workers, then this process."""
        self.is_ending = True
        for worker in list(self.workers.values()):
            worker.stop(stop_seconds)

    # -- what workers need ---------------------------------------------------------------------

    def next_serial(self) -> int:
        return next(self._serials)

    def credentials_folder(self, serial: int) -> Path:
        return self._state / FOLDER / str(serial)

    def report(self, worker: KeeperProcess, kind: str, reason: str = "") -> None:
        if self._daemon is not None:
            self._daemon.send(
                {
                    "worker": worker.name,
                    "kind": kind,
                    "reason": reason,
                    "last_lines": worker.last_lines,
                    "pid": worker.pid,
                    "init": worker.init,
                }
            )

    def forget(self, worker: KeeperProcess) -> None:
        if self.workers.get(worker.name) is worker:
            del self.workers[worker.name]
        if self._daemon is None and not self.workers:
            self.is_ending = True

    # -- daemons -------------------------------------------------------------------------------

    def _on_connection(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if self._daemon is not None and not self._daemon.is_own(connection):
            connection.close()
            return
        if self._daemon is not None:
            self._daemon.refuse(connection)
            return
        daemon = DaemonSide(self, connection)
        if daemon.is_own(connection):
            self._daemon = daemon
            self._connections += 1
            daemon.listen()
        else:
            connection.close()

    def on_hello(self, when_bus_stops: str, adopt_seconds: float) -> None:
        """Handle a daemon's connection; stop the workers that it does not adopt in time."""
        self.when_bus_stops = when_bus_stops
        self.adopt_seconds = adopt_seconds
        self._unclaimed = set(self.workers)
        number = self._connections
        self.after(adopt_seconds, lambda: self._end_unclaimed(number))
        if self.is_ending:  # a new daemon waits for us: kill at once
            self.end_all(0.0)

    def claim(self, name: str) -> KeeperProcess | None:
        self._unclaimed.discard(name)
        return None if self.is_ending else self.workers.get(name)

    def _end_unclaimed(self, number: int) -> None:
        if number != self._connections:
            return
        for name in self._unclaimed & set(self.workers):
            self.workers[name].stop()

    def on_daemon_gone(self) -> None:
        """Handle the end of the daemon: end all workers, or keep them for a while."""
        self._daemon = None
        self._connections += 1
        if self.when_bus_stops == "stop" or not self.workers:
            self.end_all()
        else:
            number = self._connections
            self.after(self.adopt_seconds, lambda: self._end_unless_connected(number))

    def _end_unless_connected(self, number: int) -> None:
        if number == self._connections:
            self.end_all()
