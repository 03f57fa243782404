"""Open sockets by address: listening ones for the bus, connected ones for its clients."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import anyio

from busd.errors import BusForbidden, BusUnreachable, ConfigError
from busd.wire.bus_address import BusAddress

_BACKLOG = 4096
_START_ONE = 'start one with "busd serve"'


def check_place(address: BusAddress, *, is_open: bool) -> None:
    """Raise ConfigError if it is unsafe to listen there; an open bus authenticates nobody."""
    if address.is_loopback:
        return
    if not address.is_encrypted:
        raise ConfigError(
            f"{address}: everybody on the network could read along; use tls:// there, or listen"
            " on 127.0.0.1 or a Unix socket"
        )
    if is_open:
        raise ConfigError(
            f'{address}: everybody on the network could use this bus; set policy = "strict"'
        )


def listen_on(address: BusAddress) -> socket.socket:
    """Open a listening socket; raise ConfigError with the reason if that fails."""
    try:
        if address.scheme == "unix":
            return _listen_unix(address)
        return _listen_tcp(address)
    except OSError as problem:
        raise ConfigError(f"cannot listen on {address}: {problem.strerror}") from None


def _listen_unix(address: BusAddress) -> socket.socket:
    path = Path(address.path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_stale(address)
    sock = socket.socket(socket.AF_UNIX)
    # The mode must be right from the first moment, not after a chmod.
    old_mask = os.umask(0o177)
    try:
        sock.bind(address.path)
    finally:
        os.umask(old_mask)
    sock.listen(_BACKLOG)
    sock.setblocking(False)
    return sock


def _remove_stale(address: BusAddress) -> None:
    """Remove the socket file of a bus that no longer runs; raise ConfigError if it still does."""
    path = Path(address.path)
    if not path.exists():
        return
    if not path.is_socket():
        raise ConfigError(f"{address}: there is a file here that is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(address.path)
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except FileNotFoundError:
            return
        except BlockingIOError:
            pass  # its backlog is full, so a process listens
    raise ConfigError(f"{address}: another bus is listening here; stop it first")


def _listen_tcp(address: BusAddress) -> socket.socket:
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    family, _, _, _, where = sorted(found, key=lambda info: info[0] != socket.AF_INET)[0]
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(where)
    except OSError:
        sock.close()
        raise
    sock.listen(_BACKLOG)
    sock.setblocking(False)
    return sock


def bound_address(address: BusAddress, sock: socket.socket) -> BusAddress:
    """Return the address with the port that the kernel chose for port 0."""
    if address.scheme == "unix":
        return address
    return BusAddress(address.scheme, address.path, address.host, sock.getsockname()[1])


def forget(address: BusAddress, sock: socket.socket) -> None:
    """Close a listening socket and remove its file."""
    sock.close()
    if address.scheme == "unix":
        Path(address.path).unlink(missing_ok=True)


def tune(sock: socket.socket) -> None:
    """Send small frames at once, and let the kernel detect dead peers."""
    sock.setblocking(False)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


async def connect_to(address: BusAddress) -> socket.socket:
    """Return a connected, non-blocking socket; raise BusUnreachable."""
    try:
        if address.scheme == "unix":
            sock, where = socket.socket(socket.AF_UNIX), address.path
            return await _connect(sock, where)
        return await _connect_tcp(address)
    except OSError as problem:
        raise _why_unreachable(address, problem) from None


def _why_unreachable(address: BusAddress, problem: OSError) -> BusUnreachable:
    """Return the error for a failed connect, with the cause and the next step."""
    if isinstance(problem, PermissionError):
        return BusForbidden(
            f"not allowed to connect to {address}: {problem.strerror}; this is another user's "
            "bus; choose yours with --address or $BUSD_ADDRESS"
        )
    if isinstance(problem, FileNotFoundError):
        return BusUnreachable(f"no bus at {address}; {_START_ONE}")
    if isinstance(problem, ConnectionRefusedError):
        also = f"; {_START_ONE}" if address.is_loopback else ""
        return BusUnreachable(f"no bus at {address}: {problem.strerror}{also}")
    return BusUnreachable(f"cannot reach a bus at {address}: {problem.strerror or problem}")


async def _connect_tcp(address: BusAddress) -> socket.socket:
    found = await anyio.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    problem: OSError | None = None
    for family, _, _, _, where in sorted(found, key=lambda info: info[0] != socket.AF_INET):
        try:
            return await _connect(socket.socket(family), where)
        except OSError as this:
            problem = this
    raise problem or OSError(errno.EADDRNOTAVAIL, "no address found")


async def _connect(sock: socket.socket, where: object) -> socket.socket:
    sock.setblocking(False)
    try:
        # EAGAIN: a Unix listener's backlog is full, and no event reports when it is not.
        while (error := sock.connect_ex(where)) == errno.EAGAIN:  # type: ignore[arg-type]
            await anyio.sleep(0.01)
        if error == errno.EINPROGRESS:
            await anyio.wait_writable(sock)
            error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        tune(sock)
    except BaseException:
        sock.close()
        raise
    return sock
