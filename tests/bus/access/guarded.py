"""Daemons with grants and tokens, and connections to them by whoever shows what."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import pytest

from tests.daemons import Daemon, Loop, open_daemon
from tests.wire_peers import (
    Closed,
    Json,
    LinePeer,
    Peer,
    Transport,
    WebSocketPeer,
    connect,
    open_http,
    open_tcp,
    upgrade_lines,
)

Grants = Sequence[Mapping[str, object]]
Way = Literal["auth", "bearer", "basic"]  # how a token is shown
GUEST, OTHER_GUEST = 65_534, 65_533  # uids that own nothing here

# Connects as another user, gives the socket to its parent, and lives until told to end.
# It becomes that user by itself, as Python may lie where only root can start it.
_DIAL = """
import os, socket, sys
uid = int(sys.argv[3])
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
if sys.argv[1].isdigit():
    sock = socket.socket(socket.AF_INET)
    sock.connect(("127.0.0.1", int(sys.argv[1])))
else:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(sys.argv[1])
socket.send_fds(socket.socket(fileno=int(sys.argv[2])), [b"."], [sock.fileno()])
sys.stdin.read()
"""


@contextmanager
def open_guarded(
    loop: Loop, grants: Grants = (), settings: Mapping[str, object] | None = None
) -> Iterator[Daemon]:
    """Run a daemon of policy strict with these grants; other users can reach its socket.

    Who connects over loopback is not known by that alone, unless the settings say so: else we, who
    own the bus, could not be strangers.
    """
    folder = Path(tempfile.mkdtemp(prefix="busd-test-"))
    folder.chmod(0o755)
    write_grants(folder, grants)
    strict = {"policy": "strict", "identify_loopback": False, **(settings or {})}
    with open_daemon(loop, strict, folder=folder) as daemon:
        Path(daemon.path).chmod(0o666)
        yield daemon


def write_grants(folder: Path, grants: Grants) -> None:
    """Write the `[[grant]]` tables that the next start or reload reads."""
    tables: list[str] = []
    for grant in grants:
        tables += ["[[grant]]", *(f"{key} = {json.dumps(value)}" for key, value in grant.items())]
    (folder / "conf.d").mkdir(exist_ok=True)
    (folder / "conf.d/grants.toml").write_text("\n".join(tables))


def reload(daemon: Daemon, grants: Grants) -> None:
    """Have the daemon read other grants; it does so soon, not yet."""
    write_grants(daemon.folder, grants)
    daemon.signal(signal.SIGHUP)


def owner_token(daemon: Daemon) -> str:
    return (daemon.folder / "state/token").read_text().strip()


def new_token(daemon: Daemon, name: str) -> str:
    """Make a token as the owner does, over the Unix socket."""
    made: str = as_owner(daemon, "bus.newToken", {"name": name})["token"]
    return made


def as_owner(daemon: Daemon, method: str, params: Json = None) -> Json:
    """Call a method as the user that runs the bus."""
    peer = connect(daemon, "unix")
    try:
        peer.initialize("owner:cli")
        return peer.call(method, params)
    finally:
        peer.close()


def show_token(
    daemon: Daemon, transport: Transport, way: Way, token: str, opened: ExitStack
) -> tuple[Peer, Json]:
    """Open a connection that shows a token; give it and what its `initialize` needs besides."""
    if way == "auth":
        peer = connect(daemon, transport)
        opened.callback(peer.close)
        return peer, {"auth": {"token": token}}
    value = f"Bearer {token}"
    if way == "basic":
        value = "Basic " + base64.b64encode(f"anybody:{token}".encode()).decode()
    return open_with_header(daemon, f"Authorization: {value}", opened), {}


def open_with_header(daemon: Daemon, header: str, opened: ExitStack) -> WebSocketPeer:
    peer = WebSocketPeer(open_tcp(daemon.port))
    opened.callback(peer.close)
    status, _ = open_http(peer, *upgrade_lines(header))
    assert status == 101
    return peer


def join_with(
    daemon: Daemon, transport: Transport, token: str, name: str, opened: ExitStack
) -> Peer:
    """Join over a transport by a token."""
    peer, more = show_token(daemon, transport, "auth", token, opened)
    peer.initialize(name, **more)
    return peer


def connect_as(uid: int, daemon: Daemon, opened: ExitStack, transport: Transport = "unix") -> Peer:
    """Open a connection as another user; skips if we may not be another."""
    peer: Peer
    sock = _dial(uid, daemon.path if transport == "unix" else str(daemon.port), opened)
    daemon.visitors.add(sock)
    if transport == "ws":
        peer = web = WebSocketPeer(sock)
        web.shake_hands()
    else:
        peer = LinePeer(sock)
    opened.callback(peer.close)
    return peer


def _dial(uid: int, where: str, opened: ExitStack) -> socket.socket:
    """Connect as another user, to a path or a port."""
    if os.geteuid() != 0:
        pytest.skip("only root can connect as another user")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _DIAL, where, str(theirs.fileno()), str(uid)],
            cwd="/",
            stdin=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
        )
        opened.callback(process.wait)
        assert process.stdin is not None
        opened.callback(process.stdin.close)
        theirs.close()
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    assert descriptors, "it could not connect"
    sock = socket.socket(fileno=descriptors[0])
    sock.settimeout(30)
    return sock


def join_as(uid: int, daemon: Daemon, name: str, opened: ExitStack) -> Peer:
    """Join over the Unix socket as another user."""
    peer = connect_as(uid, daemon, opened)
    peer.initialize(name)
    return peer


def error_of(peer: Peer, method: str, params: Json = None) -> tuple[int, str]:
    """Make a request that is refused; give the code and the rule."""
    error = peer.answer_to(peer.request(method, params))["error"]
    return error["code"], error["data"]["rule"]


def is_closed(peer: Peer) -> bool:
    """True if the bus has closed the connection, or does before it answers a ping."""
    try:
        peer.call("ping")
    except (Closed, OSError):
        return True
    return False
