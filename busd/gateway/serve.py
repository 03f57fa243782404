"""Run the gateway: listen, serve, and drain when asked to stop.

As the daemon does, it opens its socket or gets it from systemd, reports to the service manager, and
stops on SIGTERM and SIGINT; a second signal ends the waiting.
"""

from __future__ import annotations

import errno
import faulthandler
import fcntl
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import structlog

from busd.errors import BusdError, ConfigError
from busd.gateway.app import make_app
from busd.gateway.clients import Clients
from busd.gateway.host import Host
from busd.gateway.hub import Hub
from busd.gateway.identity import Identities
from busd.gateway.links import Links, load_key
from busd.gateway.loading import Route, addresses_of, load_dialects
from busd.gateway.mounting import Site, load_mounts, mounted
from busd.gateway.settings import GatewaySettings, GatewayTable, check_gateway, parse_listen
from busd.gateway.store_thread import StoreThread
from busd.gateway.tokens import GatewayTokens
from busd.ops import notify
from busd.ops.inherit import take_inherited_sockets
from busd.plugin.declared import read_tables
from busd.plugin.file_safety import find_danger, find_danger_above
from busd.settings.config import Settings
from busd.wire.bus_address import BusAddress
from busd.wire.sockets import listen_on

log = structlog.get_logger("busd.gateway")

OnReady = Callable[[dict[str, str]], None]  # gets what each address is for
FOLDER = "gateway"  # within the state folder of the bus
_STORE_FILE, _LOCK_FILE = "gateway.db", "gateway.lock"


def run_gateway(settings: Settings, on_ready: OnReady) -> None:
    """Run the gateway in this process until asked to stop; raise ConfigError if it cannot start."""
    tables = read_tables(settings, GatewaySettings)
    check_gateway(tables)
    faulthandler.enable()  # the watchdog ends a hanging process with SIGABRT: show where it hangs
    _raise_file_limit()
    # Its warnings are about what clients do, and say neither who nor what.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    folder = Path(settings.state) / FOLDER
    with lock_folder(folder):
        gateway = Gateway(tables.gateway, folder, on_ready)
        anyio.run(gateway.run, settings, backend_options={"use_uvloop": True})


class Gateway:
    """One gateway, from its start to its end."""

    def __init__(self, table: GatewayTable, folder: Path, on_ready: OnReady) -> None:
        self._table = table
        self._folder = folder
        self._on_ready = on_ready

    async def run(self, settings: Settings) -> None:
        """Serve until a signal comes; raise ConfigError if that is not possible."""
        table = self._table
        routes = await load_dialects(table.dialects, settings.plugins)
        mounts = await load_mounts(settings)
        with ExitStack() as opened:
            listeners = open_listeners(table.listen)
            for sock in listeners:
                opened.enter_context(sock)
            links = Links(load_key(self._folder), table.link_seconds)
            tokens = GatewayTokens(self._folder)
            tokens.list()  # raises if others could have written the file
            identities = Identities(tokens, identify_loopback=table.identify_loopback)
            async with StoreThread(self._folder / _STORE_FILE, table.store) as store:
                hub = Hub(store, table)
                clients = Clients(hub, table, identities, links)
                # The hub is outermost: what it raises is raised as it is.
                site = Site(settings, self._folder.parent, lambda: clients.is_draining)
                async with (
                    hub.serving(),
                    clients.serving(),
                    mounted(mounts, site, [each.path for each in routes]) as more,
                ):
                    host = Host(clients, make_app(clients, routes, more), listeners)
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(_obey, host)
                        hub.listening = [_place_of(sock) for sock in listeners]
                        await host.serve(lambda: self._say_ready(routes, hub.listening))
                        # Without the receiver, another signal would end the process by default.
                        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
                        tasks.cancel_scope.cancel()

    def _say_ready(self, routes: list[Route], places: list[str]) -> None:
        addresses: dict[str, str] = {}
        for place in places:
            addresses |= addresses_of(routes, place)
        self._on_ready(addresses)
        notify.ready(f"listening on {', '.join(places)}")


async def _obey(host: Host) -> None:
    """Drain on the first signal, stop waiting on the second."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            log.info("gateway.stopping", signal=number.name)
            host.stop()


def open_listeners(listen: str) -> list[socket.socket]:
    """Return the sockets of systemd, else one for the address; raise ConfigError."""
    if inherited := take_inherited_sockets():
        for each in inherited:
            if each.address.scheme != "tcp" or not each.address.is_loopback:
                raise ConfigError(
                    f"inherited socket {each.name!r}: {each.address} is no loopback TCP"
                )
        return [each.sock for each in inherited]
    host, port = parse_listen(listen)
    return [listen_on(BusAddress("tcp", host=host, port=port))]


def _place_of(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Create and lock the folder, so that a second gateway is refused.

    Raise ConfigError, or BusdError if the disk is full.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # the mode is not for parents
        folder.mkdir(mode=0o700, exist_ok=True)
        if danger := find_danger(folder, is_deep=False) or find_danger_above(folder):
            raise ConfigError(f"cannot use the folder {folder}: {danger}")
        descriptor = os.open(folder / _LOCK_FILE, flags, 0o600)
    except OSError as problem:
        is_link = problem.errno == errno.ELOOP
        why = "there is a symbolic link in it; remove it" if is_link else problem.strerror
        kind = BusdError if problem.errno == errno.ENOSPC else ConfigError
        raise kind(f"cannot use the folder {folder}: {why}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(f"another gateway uses the folder {folder}; stop it first") from None
    try:
        yield
    finally:
        os.close(descriptor)


def _raise_file_limit() -> None:
    """Raise the limit of open files as far as allowed: every connection needs one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
