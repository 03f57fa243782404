"""Pages of the bus, fetched by hand: one request on a socket, and all that comes back."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import NamedTuple

from tests.daemons import Daemon
from tests.wire_peers import open_tcp


class Fetched(NamedTuple):
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    text: str


def fetch(
    daemon: Daemon, path: str, *headers: str, hosts: Sequence[str] = ("localhost",)
) -> Fetched:
    """Get a page over a connection of its own."""
    return fetch_over(open_tcp(daemon.port), path, *headers, hosts=hosts)


def fetch_over(
    sock: socket.socket, path: str, *headers: str, hosts: Sequence[str] = ("localhost",)
) -> Fetched:
    """Get a page over a connection that is open already; the bus closes it afterwards."""
    with sock:
        head = "\r\n".join([f"GET {path} HTTP/1.1", *(f"Host: {host}" for host in hosts), *headers])
        sock.sendall(head.encode() + b"\r\n\r\n")
        received = b""
        while chunk := sock.recv(65_536):
            received += chunk
    lines, _, text = received.decode().partition("\r\n\r\n")
    status, *rest = lines.split("\r\n")
    pairs = (line.split(": ", 1) for line in rest)
    return Fetched(int(status.split()[1]), {name.lower(): value for name, value in pairs}, text)
