"""The process at the other end of a Unix socket; needs only the standard library."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

_UCRED = struct.Struct("3i")


class UnixPeer(NamedTuple):
    """What the kernel recorded of a process when it connected, or listened."""

    pid: int
    uid: int
    gid: int


def read_unix_peer(sock: socket.socket) -> UnixPeer:
    """Return the process at the other end of a connected Unix socket."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return UnixPeer._make(_UCRED.unpack(raw))
