"""Find the owner of the other end of a loopback TCP connection by socket diagnostics.

Both ends of a loopback connection are sockets of this host, so the kernel knows the owner of the
other one. It is asked over netlink (`sock_diag(7)`, family INET_DIAG) for the socket with exactly
this connection's four-tuple, the ends exchanged.

Only an answer in state ESTABLISHED and with an inode counts. A socket that its process has closed
has no inode any more, and the kernel reports uid 0 for it.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from typing import NamedTuple

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_TCP_ESTABLISHED = 1
_ANY_STATE = 0xFFFFFFFF
_NO_COOKIE = (0xFFFFFFFF, 0xFFFFFFFF)
_ANSWER_BYTES = 4_096
_ANSWER_SECONDS = 1.0  # the answer arrives within the call; if not, the loop must not hang

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port of the sender
_REQUEST = struct.Struct("=BBBxI")  # family, protocol, extensions, states
_PORTS = struct.Struct(">HH")
_INTERFACE_AND_COOKIE = struct.Struct("=III")
_MESSAGE = struct.Struct("=xBxx48s12xII")  # state, the socket's id, uid, inode


class Owner(NamedTuple):
    """The owner of a socket, and the inode under which /proc/PID/fd lists it."""

    uid: int
    inode: int


def loopback_owner(sock: socket.socket) -> Owner | None:
    """Return the owner of the other end of a connected socket; None if that is not certain."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        ours, theirs = sock.getsockname()[:2], sock.getpeername()[:2]
        if not _is_loopback(theirs[0]):
            return None
        return _read_answer(_ask(_request(sock.family, theirs, ours)), theirs, ours)
    except OSError:  # no netlink here, or the peer has disconnected
        return None


def _is_loopback(host: str) -> bool:
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _request(family: int, source: tuple[str, int], target: tuple[str, int]) -> bytes:
    """Return the request for the one socket that is connected from `source` to `target`."""
    wanted = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, _ANY_STATE)
    body = wanted + _ends(family, source, target) + _INTERFACE_AND_COOKIE.pack(0, *_NO_COOKIE)
    size = _HEADER.size + len(body)
    return _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + body


def _ends(family: int, source: tuple[str, int], target: tuple[str, int]) -> bytes:
    hosts = b"".join(
        socket.inet_pton(family, host).ljust(16, b"\0") for host, _ in (source, target)
    )
    return _PORTS.pack(source[1], target[1]) + hosts


def _ask(question: bytes) -> bytes:
    flags = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
    with socket.socket(socket.AF_NETLINK, flags, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(_ANSWER_SECONDS)
        kernel.sendto(question, (0, 0))
        return kernel.recv(_ANSWER_BYTES)


def _read_answer(answer: bytes, source: tuple[str, int], target: tuple[str, int]) -> Owner | None:
    if len(answer) < _HEADER.size + _MESSAGE.size:
        return None  # an error: there is no such socket
    _, kind, _, _, _ = _HEADER.unpack_from(answer)
    state, ends, uid, inode = _MESSAGE.unpack_from(answer, _HEADER.size)
    is_it = kind == _SOCK_DIAG_BY_FAMILY and ends.startswith(_PORTS.pack(source[1], target[1]))
    return Owner(uid, inode) if is_it and state == _TCP_ESTABLISHED and inode else None
