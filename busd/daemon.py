"""The daemon: puts wire, rpc and bus together and runs them until asked to stop.

Read this file first. docs/life-of-a-message.md lists the functions that a message passes.
"""

from __future__ import annotations

import errno
import faulthandler
import fcntl
import os
import resource
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import structlog
from anyio import to_thread
from anyio.abc import TaskGroup

from busd.bus.authenticator import Authenticator
from busd.bus.bus import Bus
from busd.bus.mailboxes import Mailboxes
from busd.bus.message import Outcome
from busd.errors import ConfigError
from busd.journal.journal import Journal, open_journal
from busd.mail.sqlite import SqliteMailStore
from busd.ops import notify
from busd.ops.admin import JOURNAL_FILE, admin_methods
from busd.ops.inherit import places_to_listen
from busd.ops.log_limit import REPORT_SECONDS, log_limit
from busd.ops.offload import Offload
from busd.ops.pages import Pages, host_names
from busd.ops.reloads import RefusedPlugin, Reloaded, Reloads
from busd.ops.tokens import TokenStore
from busd.plugin.file_safety import find_danger, find_danger_above
from busd.plugin.host import PluginHost
from busd.rpc.envelope import encode_failure
from busd.settings.config import Settings, changes, keep_fixed
from busd.settings.doubts import find_doubts
from busd.wire.bus_address import BusAddress
from busd.wire.connections import Connections
from busd.wire.driver import scheduler, thread_scheduler
from busd.wire.http_gate import HttpGate
from busd.wire.listener import Listener
from busd.wire.sockets import check_place
from busd.wire.tls_settings import Certificates

log = structlog.get_logger("busd.daemon")

SWEEP_SECONDS = 0.25
MAIL_FILE = "mail.db"
_MAIL_SECONDS = 5.0  # to write the last mail at the end
_LAST_SECONDS = 1.0  # for everything else to end if a plugin cannot be stopped
OnReady = Callable[[list[BusAddress]], None]
ReadSettings = Callable[[], Settings]


def run_daemon(read_settings: ReadSettings, on_ready: OnReady) -> None:
    """Run a bus in this process until asked to stop; raise ConfigError if it cannot start."""
    settings = read_settings()
    _raise_file_limit()
    faulthandler.enable()  # the watchdog ends a hanging bus with SIGABRT: show where it hangs
    with ExitStack() as state:
        state.enter_context(lock_state(Path(settings.state)))
        journal = state.enter_context(open_log(settings))
        daemon = partial(Daemon, settings, read_settings, journal, close_state=state.close)
        main = partial(_serve_until_signal, daemon, on_ready)
        if settings.loop == "trio":
            anyio.run(main, backend="trio")
        else:
            anyio.run(main, backend_options={"use_uvloop": settings.loop == "uvloop"})


async def _serve_until_signal(make_daemon: Callable[[], Daemon], on_ready: OnReady) -> None:
    daemon = make_daemon()  # opens the listeners: errors must be readable
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_obey, signals, daemon)
            await daemon.serve(on_ready)
            # Without this receiver, another signal would end the process by default.
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
            tasks.cancel_scope.cancel()


async def _obey(signals: AsyncIterator[signal.Signals], daemon: Daemon) -> None:
    """Reload on SIGHUP; else drain on the first signal, stop waiting on the second."""
    async for number in signals:
        if number == signal.SIGHUP:
            daemon.reloads.request()
            continue
        log.info("daemon.stopping", signal=number.name)
        if daemon.is_stopping.is_set():
            daemon.must_hurry.set()
        daemon.is_stopping.set()


class Daemon:
    """One bus with its listeners, its plugins and its sweeper."""

    def __init__(
        self,
        settings: Settings,
        read_settings: ReadSettings,
        journal: Journal | None = None,
        close_state: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self._read_settings = read_settings
        self._close_state = close_state
        self.tokens = TokenStore(Path(settings.state))
        self.offload = Offload()
        authenticator = self._make_authenticator(settings)
        self.bus = Bus(
            admin_methods(self),
            settings.delivery,
            authenticator,
            quota=settings.quota,
            loops=settings.loops,
        )
        self.bus.recorder = self.journal = journal
        self.bus.is_verbose = settings.log_level == "debug"
        self.http_gate = HttpGate(
            settings.allowed_origins, Pages(self).by_path, host_names(settings)
        )
        self.connections = Connections(
            settings.wire,
            self.http_gate,
            self.bus.make_session,
            scheduler(),
            end_session=self.bus.end_session,
            encode_refusal=lambda fault: encode_failure(None, fault) + b"\n",
        )
        self.certificates = Certificates(settings.tls) if settings.tls.certificate else None
        with ExitStack() as opened:
            self.listeners = self._open_listeners()
            for listener in self.listeners:
                opened.callback(listener.forget)
            self.mail = self._open_mail()
            opened.pop_all()
        self.bus.mailboxes = self.mailboxes = Mailboxes(self.bus, self.mail, settings.mail)
        self.plugins = PluginHost(self.bus, settings, self.connections.flush)
        self.reloads = Reloads(self._reload)
        self.last_reload = Reloaded()
        self.lag_seconds = 0.0
        self.is_stopping = anyio.Event()
        self.must_hurry = anyio.Event()

    def _make_authenticator(self, settings: Settings) -> Authenticator:
        owners = {0, os.geteuid()}
        return Authenticator(
            settings.policy,
            settings.grant,
            self.tokens.load(),
            owners,
            identify_loopback=settings.identify_loopback,
        )

    def _open_mail(self) -> SqliteMailStore:
        schedule = thread_scheduler()

        def run_soon(function: Callable[[], None]) -> None:
            def run() -> None:
                function()
                self.connections.flush()

            schedule(run)

        path = Path(self.settings.state) / MAIL_FILE
        return SqliteMailStore(path, run_soon, self.settings.mail)

    def _open_listeners(self) -> list[Listener]:
        """Open all listeners or none."""
        is_open = self.settings.policy == "open"
        with ExitStack() as opened:
            listeners: list[Listener] = []
            for address, sock in places_to_listen(self.settings.listen):
                check_place(address, is_open=is_open)
                listener = Listener(address, sock, self.certificates)
                opened.callback(listener.forget)
                listeners += [listener]
            opened.pop_all()
        return listeners

    async def serve(self, on_ready: OnReady) -> None:
        """Listen, route and sweep until asked to stop; then answer what was accepted."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._sweep)
            tasks.start_soon(self._report_suppressed)
            tasks.start_soon(self._work)
            if self.journal is not None:
                tasks.start_soon(self._keep_journal, self.journal)
            tasks.start_soon(self.offload.run, self.connections.flush)
            await self._load_mail()
            await self._start_plugins(tasks)
            for listener in self.listeners:
                tasks.start_soon(listener.serve, self.connections, tasks)
            on_ready([listener.address for listener in self.listeners])
            notify.ready(self._status)
            self._warn()
            tasks.start_soon(self.reloads.serve, self.connections.flush)
            await self.is_stopping.wait()
            notify.stopping(self.longest_stop_seconds)
            self.reloads.close()
            for listener in self.listeners:
                listener.close()
            await self._drain()
            await self.plugins.stop()
            self.mail.close(_MAIL_SECONDS)
            if self.plugins.is_stuck:
                self._leave_soon()
            tasks.cancel_scope.cancel()

    async def _load_mail(self) -> None:
        """Find out what waits in the mailboxes, before anybody can connect."""
        is_loaded = anyio.Event()
        self.mailboxes.load(is_loaded.set)
        await is_loaded.wait()

    async def _start_plugins(self, tasks: TaskGroup) -> None:
        """Start the plugins before clients can connect; none can prevent our start."""
        addresses = [listener.address for listener in self.listeners]
        self.plugins.bus_address = _address_for_workers(addresses)
        plain = (each for each in addresses if each.is_loopback and each.scheme in ("tcp", "ws"))
        if web := next(plain, None):
            self.plugins.web_socket_address = str(BusAddress("ws", "/", web.host, web.port))
        await self.plugins.start(tasks)

    def _leave_soon(self) -> None:
        """End the process if a plugin's task cannot be ended: the loop would wait for it."""

        def leave() -> None:
            self._close_state()
            os._exit(0)

        timer = threading.Timer(_LAST_SECONDS, leave)
        timer.daemon = True
        timer.start()

    @property
    def longest_stop_seconds(self) -> float:
        """The time after which a stopping bus has ended, unless it hangs."""
        settings = self.settings
        waits = (
            settings.drain_seconds,
            settings.wire.linger_seconds,
            settings.plugins.stop_seconds,
            _MAIL_SECONDS,
        )
        return sum(waits) + 5

    @property
    def _status(self) -> str:
        """The text for `systemctl status`: our addresses, and what the last reload refused."""
        said = f"listening on {', '.join(str(listener.address) for listener in self.listeners)}"
        last = self.last_reload
        if last.refused:
            return f"reload refused, the old settings stay: {last.refused}; {said}"
        if last.plugins:
            refused = ", ".join(each.name for each in last.plugins)
            return f"reloaded, but not these plugins: {refused}; {said}"
        return said

    async def _reload(self) -> Reloaded:
        """Reload, and report the result to the service manager."""
        notify.reloading()
        try:
            self.last_reload = await self._take_settings()
            return self.last_reload
        finally:
            notify.ready(self._status)

    async def _take_settings(self) -> Reloaded:
        """Apply new settings without dropping connections that are still allowed."""
        try:
            # In a thread: a file may be on a disk that does not answer.
            new = await to_thread.run_sync(self._read_settings, abandon_on_cancel=True)
            authenticator = self._make_authenticator(new)
            self._check_reload(new)
        except ConfigError as problem:
            log.error("settings.refused", reason=str(problem))
            return Reloaded(refused=str(problem))
        kept = keep_fixed(self.settings, new)
        changed, fixed = changes(self.settings, kept), changes(kept, new)
        self.settings = kept
        warnings = self._warn()
        self.http_gate.change(kept.allowed_origins, host_names(kept))
        self.connections.change(new.wire)
        self.bus.change(new.delivery, new.quota)
        self.mailboxes.change(kept.mail)
        self.bus.loops.change(new.loops)
        self.bus.take_access(authenticator)
        if self.journal is not None:
            self.journal.change(kept.journal)
        self.connections.flush()
        plugin_changes = await self.plugins.reload(kept)
        log.info("settings.reloaded", changed=changed)
        if fixed:
            log.warning("settings.need_restart", settings=fixed)
        refused = [
            RefusedPlugin(each.name, each.origin, each.last_fault)
            for each in self.plugins.describe()
            if each.state in ("faulty", "outdated")
        ]
        return Reloaded("", changed, fixed, warnings, refused, plugin_changes)

    def _check_reload(self, new: Settings) -> None:
        """Refuse settings that make the bus less safe than at its start; read certificates."""
        for listener in self.listeners:
            check_place(listener.address, is_open=new.policy == "open")
        if self.certificates is not None and new.tls.certificate:
            self.certificates.load(new.tls)

    def _warn(self) -> list[str]:
        """Log warnings about settings that do not prevent the start."""
        doubts = list(find_doubts(self.settings))
        warnings = self.certificates.warnings if self.certificates else []
        for doubt in doubts:
            log.warning("settings.doubtful", reason=doubt.says, fix=doubt.fix)
        for warning in warnings:
            log.warning("certificate.doubtful", reason=warning)
        return [*(f"{each.says}; {each.fix}" for each in doubts), *warnings]

    async def _sweep(self) -> None:
        watchdog = notify.Watchdog()  # notified by this loop: if it hangs, we are restarted
        while True:
            before = time.monotonic()
            await anyio.sleep(SWEEP_SECONDS)
            self.lag_seconds = time.monotonic() - before - SWEEP_SECONDS
            self.bus.sweep()
            self.connections.sweep()
            self.connections.flush()
            watchdog.feed()

    async def _report_suppressed(self) -> None:
        try:
            while True:
                await anyio.sleep(REPORT_SECONDS)
                log_limit.report()
        finally:
            log_limit.report()

    async def _work(self) -> None:
        """Process the deferred work of the bus, a slice per round of the loop."""
        while True:
            woken = anyio.Event()
            self.bus.wake = woken.set
            # Work deferred before the line above is processed now.
            while self.bus.work():
                self.connections.flush()
                await anyio.lowlevel.checkpoint()
            self.connections.flush()
            await woken.wait()

    async def _keep_journal(self, journal: Journal) -> None:
        """Pass records to the writer of the activity log periodically."""
        while True:
            # Corrected each time: the system clock may be set while the bus runs.
            journal.wall_offset = time.time() - self.bus.clock()
            before = self.bus.clock()
            await anyio.sleep(journal.settings.write_seconds)
            # Most deliveries are answered by now. To write one as in flight and delete it again
            # costs 5 times as much as to write it once it is answered.
            journal.pump(partial(self.bus.open_since, before=before))

    async def _drain(self) -> None:
        """Refuse new messages, wait for pending acks, then close all connections."""
        self.bus.is_stopping = True
        with anyio.move_on_after(self.settings.drain_seconds):
            await self._until(lambda: self.bus.is_idle)
        self.bus.give_up(Outcome.STOPPING)
        self.connections.close_all()
        with anyio.move_on_after(self.settings.wire.linger_seconds):
            await self._until(lambda: not self.connections.open)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so() and not self.must_hurry.is_set():
            await anyio.sleep(0.01)


@contextmanager
def open_log(settings: Settings) -> Iterator[Journal | None]:
    """Open the activity log, unless it is disabled."""
    if not settings.journal.enabled:
        yield None
        return
    with open_journal(Path(settings.state) / JOURNAL_FILE, settings.journal) as journal:
        yield journal


@contextmanager
def lock_state(directory: Path) -> Iterator[None]:
    """Lock the state directory, so that a second daemon is refused."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_state(directory)
        descriptor = os.open(directory / "busd.lock", flags, 0o600)
    except OSError as problem:
        where = problem.filename or directory
        raise ConfigError(
            f"cannot use state directory {directory}: {_why(problem, where)}"
        ) from None
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


def _check_state(directory: Path) -> None:
    """Raise ConfigError if other users could replace our files."""
    if danger := find_danger(directory, is_deep=False) or find_danger_above(directory):
        raise ConfigError(f"cannot use state directory {directory}: {danger}")


def _why(problem: OSError, where: object) -> str:
    if problem.errno == errno.ELOOP:
        return f"{where} is a symbolic link; remove it"
    return str(problem.strerror)


def _raise_file_limit() -> None:
    """Raise the limit of open files as far as allowed: every connection needs one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _address_for_workers(addresses: list[BusAddress]) -> str:
    """Return where processes find the bus that run in other folders than the bus."""
    paths = [address.path for address in addresses if address.scheme == "unix"]
    return f"unix:{Path(paths[0]).absolute()}" if paths else str(addresses[0])
