"""The credentials of the other end of a connection, as reported by the kernel."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from busd.unix_peer import read_unix_peer
from busd.wire.loopback import loopback_owner

if TYPE_CHECKING:
    from busd.wire.connection import Connection

_UNIT = re.compile(r"[^/]+\.(?:service|scope)(?=/|$)")


class Credentials(msgspec.Struct, frozen=True):
    """What is known about a peer before its first frame."""

    uid: int | None = None  # None: the kernel does not know
    by: Literal["", "unix", "loopback"] = ""  # how the uid was determined
    pid: int | None = None
    socket: int | None = None  # the inode of the other end, if that is on this host
    unit: str = ""  # the systemd unit the process belongs to
    certificate: str = ""  # the common name of its verified TLS certificate
    token: str = ""  # from the Authorization header; never logged

    def __repr__(self) -> str:
        return f"<Credentials uid={self.uid} pid={self.pid} unit={self.unit!r}>"


def with_certificate(connection: Connection) -> Credentials:
    """Return the credentials of a peer, with the name in its certificate, which arrives later."""
    known = connection.credentials
    certificate = getattr(connection.transport, "peer_certificate", None)
    if certificate is None:
        return known
    return msgspec.structs.replace(known, certificate=certificate.common_name)


def read_credentials(sock: socket.socket) -> Credentials:
    """Ask the kernel who connected; it knows for Unix sockets and loopback TCP only."""
    if sock.family == socket.AF_UNIX:
        peer = read_unix_peer(sock)
        return Credentials(uid=peer.uid, by="unix", pid=peer.pid, unit=unit_of(peer.pid))
    owner = loopback_owner(sock)
    if owner is None:
        return Credentials()
    return Credentials(uid=owner.uid, by="loopback", socket=owner.inode)


def without_loopback(credentials: Credentials) -> Credentials:
    """Return the credentials without those of a proxy, which connects on behalf of others.

    The socket stays: it identifies only the process that holds it.
    """
    if credentials.by != "loopback":
        return credentials
    return msgspec.structs.replace(credentials, uid=None, by="")


def unit_of(pid: int) -> str:
    """Return the systemd unit of a process, or "" if it has none or is gone already."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return ""
    return parse_unit(groups, os.geteuid())


def parse_unit(groups: str, own_uid: int) -> str:
    """Return the unit in the content of /proc/PID/cgroup.

    It is the outermost one, because a unit chooses the names of the groups inside it. Everything
    that another user's manager runs is `user@UID.service`, because users name their own units
    freely; the units of the manager of our own user have their own names.
    """
    for line in groups.splitlines():
        units = _UNIT.findall(line.split(":", 2)[-1])
        if len(units) > 1 and units[0] == f"user@{own_uid}.service":
            return str(units[1])
        if units:
            return str(units[0])
    return ""
