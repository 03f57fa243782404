"""Sockets that systemd opened for us: they listen before we run, and while we restart.

systemd says by `$LISTEN_PID`, `$LISTEN_FDS` and `$LISTEN_FDNAMES` which descriptors are for us. A
socket unit with `FileDescriptorName=tls` gives a socket that is served as `tls://`.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from busd.errors import ConfigError
from busd.wire.bus_address import BusAddress, parse_bus_address
from busd.wire.places import default_listen

_FIRST_DESCRIPTOR = 3
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


@dataclass(frozen=True, slots=True)
class InheritedSocket:
    """A listening socket that is not ours to remove: systemd goes on listening without us."""

    name: str
    address: BusAddress
    sock: socket.socket


def places_to_listen(listen: list[str]) -> list[tuple[BusAddress, socket.socket | None]]:
    """Return every place to listen at: first the sockets we inherit, then what we must open."""
    inherited = take_inherited_sockets()
    taken = [(each.address, each.sock) for each in inherited]
    return [*taken, *((address, None) for address in _addresses_to_open(listen, inherited))]


def take_inherited_sockets() -> list[InheritedSocket]:
    """Return the sockets that systemd passed to us; a second call, or a child, gets none."""
    pid, count, names = (os.environ.pop(name, "") for name in _VARIABLES)
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    given = names.split(":") if names else []
    return [
        _take_over(_FIRST_DESCRIPTOR + index, given[index] if index < len(given) else "unknown")
        for index in range(int(count))
    ]


def _take_over(descriptor: int, name: str) -> InheritedSocket:
    try:
        os.set_inheritable(descriptor, False)
        sock = socket.socket(fileno=descriptor)
        is_listening = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as problem:
        raise ConfigError(f"inherited socket {name!r}: {problem.strerror}") from None
    if not is_listening or sock.type != socket.SOCK_STREAM:
        raise ConfigError(f"inherited socket {name!r} is not one of ListenStream=")
    sock.setblocking(False)
    return InheritedSocket(name, _address_of(sock, name), sock)


def _address_of(sock: socket.socket, name: str) -> BusAddress:
    where = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        if not where or not isinstance(where, str):
            raise ConfigError(f"inherited socket {name!r} has no path that clients could find")
        return BusAddress("unix", where)
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        raise ConfigError(f"inherited socket {name!r} is neither a Unix nor a TCP socket")
    return BusAddress("tls" if name == "tls" else "tcp", host=where[0], port=where[1])


def _addresses_to_open(listen: list[str], inherited: list[InheritedSocket]) -> list[BusAddress]:
    """Return the addresses of the settings that no inherited socket serves already.

    Whoever sets up sockets for us and says nothing else wants us at those, not at the defaults.
    """
    if inherited and listen == default_listen():
        return []
    open_already = {_place(each.address) for each in inherited}
    addresses = [parse_bus_address(text) for text in listen]
    return [address for address in addresses if _place(address) not in open_already]


def _place(address: BusAddress) -> tuple[str, str, int]:
    """Return what two sockets cannot share; ws:// and tcp:// are two words for the same port."""
    if address.scheme == "unix":
        return "unix", os.path.realpath(address.path), 0
    return "tcp", "127.0.0.1" if address.host == "localhost" else address.host, address.port
