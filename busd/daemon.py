"""The daemon: puts wire, rpc and bus together and runs them until told to stop.

Read this file first. What happens to one message is in the README ("Life of a message").
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import structlog

from busd.bus.bus import Bus
from busd.bus.methods import methods
from busd.errors import ConfigError
from busd.ops.config import Settings
from busd.wire.bus_address import BusAddress, parse_bus_address
from busd.wire.connections import Connections
from busd.wire.listener import Listener
from busd.wire.sniff import admit_web_socket

log = structlog.get_logger("busd.daemon")

SWEEP_SECONDS = 0.25
OnReady = Callable[[list[BusAddress]], None]


def run_daemon(settings: Settings, on_ready: OnReady) -> None:
    """Run a bus in this process until it is told to stop; raises ConfigError if it cannot start."""
    _raise_file_limit()
    with lock_state(Path(settings.state)):
        if settings.loop == "trio":
            anyio.run(_serve_until_signal, settings, on_ready, backend="trio")
        else:
            options = {"use_uvloop": settings.loop == "uvloop"}
            anyio.run(_serve_until_signal, settings, on_ready, backend_options=options)


async def _serve_until_signal(settings: Settings, on_ready: OnReady) -> None:
    daemon = Daemon(settings)  # opens the listeners: what is wrong with them is said plainly
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_on, signals, daemon)
            await daemon.serve(on_ready)
            tasks.cancel_scope.cancel()


async def _stop_on(signals: AsyncIterator[signal.Signals], daemon: Daemon) -> None:
    """Drain at the first signal, give up waiting at the second."""
    async for number in signals:
        log.info("daemon.stopping", signal=number.name)
        if daemon.is_stopping.is_set():
            daemon.must_hurry.set()
        daemon.is_stopping.set()


class Daemon:
    """One bus with its listeners and its sweeper."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.bus = Bus(methods, settings.delivery, settings.policy)
        admit = admit_web_socket(tuple(settings.allowed_origins))
        self.connections = Connections(settings.wire, admit, self.bus.make_session)
        self.listeners = _open_listeners(settings.listen)
        self.is_stopping = anyio.Event()
        self.must_hurry = anyio.Event()

    async def serve(self, on_ready: OnReady) -> None:
        """Listen, route and sweep until asked to stop; then answer what was accepted."""
        async with anyio.create_task_group() as tasks:
            for listener in self.listeners:
                tasks.start_soon(listener.serve, self.connections, tasks)
            tasks.start_soon(self._sweep)
            on_ready([listener.address for listener in self.listeners])
            await self.is_stopping.wait()
            for listener in self.listeners:
                listener.close()
            await self._drain()
            tasks.cancel_scope.cancel()

    async def _sweep(self) -> None:
        while True:
            await anyio.sleep(SWEEP_SECONDS)
            self.bus.sweep()
            self.connections.sweep()

    async def _drain(self) -> None:
        """Take nothing new, wait for the acks still owed, then say goodbye to everybody."""
        self.bus.is_stopping = True
        with anyio.move_on_after(self.settings.drain_seconds):
            await self._until(lambda: self.bus.is_idle)
        self.bus.give_up("the bus is stopping")
        self.connections.close_all()
        with anyio.move_on_after(self.settings.wire.linger_seconds):
            await self._until(lambda: not self.connections.open)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so() and not self.must_hurry.is_set():
            await anyio.sleep(0.01)


def _open_listeners(addresses: list[str]) -> list[Listener]:
    """Open all or none."""
    with ExitStack() as opened:
        listeners: list[Listener] = []
        for address in addresses:
            listener = Listener(parse_bus_address(address))
            opened.callback(listener.forget)
            listeners += [listener]
        opened.pop_all()
    return listeners


@contextmanager
def lock_state(directory: Path) -> Iterator[None]:
    """Keep the state directory to ourselves; a second daemon is refused."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory / "busd.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise ConfigError(f"cannot use state directory {directory}: {problem.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(
            f"another busd uses the state directory {directory}; stop it or choose --state"
        ) from None
    try:
        yield
    finally:
        os.close(descriptor)


def _raise_file_limit() -> None:
    """Every connection needs a descriptor: take as many as we are allowed to."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
