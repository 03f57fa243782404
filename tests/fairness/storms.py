"""Storms: what one user does with many connections at once. Each is a bounded count of them.

A storm runs in a process of its own, so that it does not slow down the bystanders' own threads. It
opens its connections first; what is timed begins when it is told to strike.
"""

from __future__ import annotations

import resource
import select
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from tests.fairness.floods import request
from tests.wire_peers import open_tcp, open_unix, random_key

_HANDSHAKE = (
    "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
)
_PAGE = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class Target(NamedTuple):
    """Where a daemon listens."""

    path: str
    port: int
    tls_port: int


Strike = Callable[[], None]


@dataclass(frozen=True)
class Storm:
    """One kind of storm; `prepare` opens what it needs and returns what to do then."""

    name: str
    prepare: Callable[[Target], Strike]


def _send_to_all(socks: list[socket.socket], data: bytes) -> None:
    """Send as much of `data` to each as the kernel takes at once."""
    for sock in socks:
        sock.setblocking(False)
        try:
            sock.send(data)
        except OSError:
            pass  # refused by a quota


def _strangers(target: Target, count: int) -> list[socket.socket]:
    return [open_tcp(target.port) for _ in range(count)]


def _members(target: Target, count: int, *requests: bytes) -> list[socket.socket]:
    """Open connections that initialize and then make these requests; wait for all answers."""
    socks = [open_unix(target.path) for _ in range(count)]
    for number, sock in enumerate(socks):
        first = request("initialize", {"clientId": f"crowd:{number}"}, id=1)
        sock.sendall(b"\n".join([first, *requests, b""]))
    for sock in socks:
        received = b""
        while received.count(b"\n") <= len(requests):
            received += sock.recv(65_536)
    return socks


def _empty_lines(target: Target) -> Strike:
    socks = _strangers(target, 1_000)
    return lambda: _send_to_all(socks, b"\n" * 32_000)


def _few_empty_lines(target: Target) -> Strike:
    socks = _strangers(target, 2_000)
    return lambda: _send_to_all(socks, b"\n" * 4_000)


def _messages_to_nobody(target: Target) -> Strike:
    socks = _members(target, 1_000)
    message = request("sendMessage", {"to": "nobody", "payload": {}}) + b"\n"
    return lambda: _send_to_all(socks, message * (32_000 // len(message)))


def _few_messages(target: Target) -> Strike:
    socks = _members(target, 2_000)
    message = request("sendMessage", {"to": "nobody", "payload": {}}) + b"\n"
    return lambda: _send_to_all(socks, message * (1_000 // len(message)))


def _questions(target: Target) -> Strike:
    socks = _members(target, 2_000)
    return lambda: _send_to_all(socks, request("getStatus", {}, id=1) + b"\n")


def _handshakes(target: Target) -> Strike:
    socks = _strangers(target, 2_000)
    head = _HANDSHAKE.format(key=random_key()).encode()
    return lambda: _send_to_all(socks, head)


def _pages(target: Target) -> Strike:
    socks = _strangers(target, 1_000)
    return lambda: _send_to_all(socks, _PAGE)


def _tls_hellos(target: Target) -> Strike:
    socks = [open_tcp(target.tls_port) for _ in range(1_000)]
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    try:
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass
    hello = outgoing.read()
    return lambda: _send_to_all(socks, hello)


def _come_and_go(target: Target) -> Strike:
    def strike() -> None:
        for _ in range(5_000):
            open_unix(target.path).close()

    return strike


def _come_at_once(target: Target) -> Strike:
    """Open connections faster than they are accepted: the backlog is full all the time."""
    socks = [socket.socket(socket.AF_INET) for _ in range(4_000)]

    def strike() -> None:
        for sock in socks:
            sock.setblocking(False)
            try:
                sock.connect(("127.0.0.1", target.port))
            except BlockingIOError:
                pass
        select.select([], [], [], 2)  # seconds, for those that are accepted late

    return strike


def _leave_at_once(target: Target) -> Strike:
    socks = _members(target, 4_000)

    def strike() -> None:
        for sock in socks:
            sock.close()

    return strike


def _fan_out(target: Target, payload: str, count: int) -> Strike:
    subscribe = request("subscribe", {"address": "everybody"}, id=2)
    socks = _members(target, 2_000, subscribe)
    payload_of = {"to": "everybody", "payload": {"text": payload}}
    message = request("sendMessage", payload_of) + b"\n"
    socks[0].setblocking(True)
    return lambda: socks[0].sendall(message * count)


STORMS = [
    Storm("1,000 strangers, 32,000 empty lines", _empty_lines),
    Storm("2,000 strangers, 4,000 empty lines", _few_empty_lines),
    Storm("1,000 peers, 32 KB of messages", _messages_to_nobody),
    Storm("2,000 peers, 1 KB of messages", _few_messages),
    Storm("2,000 peers, getStatus", _questions),
    Storm("2,000 WebSocket handshakes at once", _handshakes),
    Storm("1,000 requests for /metrics", _pages),
    Storm("1,000 TLS handshakes at once", _tls_hellos),
    Storm("5,000 connections, one by one", _come_and_go),
    Storm("4,000 connections at once", _come_at_once),
    Storm("4,000 peers leave at once", _leave_at_once),
    Storm("100 messages to 2,000 peers", lambda target: _fan_out(target, "", 100)),
    Storm("60 KB to 2,000 peers", lambda target: _fan_out(target, "x" * 60_000, 2)),
    Storm("1 MB to 2,000 peers", lambda target: _fan_out(target, "x" * 1_000_000, 2)),
]


@contextmanager
def open_storm(target: Target, storm: Storm) -> Iterator[Strike]:
    """Start a process that is ready to strike; give the function that has it do so and waits."""
    command = [sys.executable, "-m", "tests.fairness.storms", storm.name, *map(str, target)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout
        assert stdout.readline() == "ready\n"

        def strike() -> None:
            stdin.write("strike\n")
            stdin.flush()
            assert stdout.readline() == "done\n"

        yield strike
        stdin.close()


def main() -> None:
    """Be the process of one storm."""
    name, path, port, tls_port = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    storm = next(each for each in STORMS if each.name == name)
    strike = storm.prepare(Target(path, int(port), int(tls_port)))
    print("ready", flush=True)
    sys.stdin.readline()
    strike()
    print("done", flush=True)
    sys.stdin.readline()  # its connections stay until then


if __name__ == "__main__":
    main()
