"""Malformed HTTP and WebSocket requests, made from a seed.

    .venv/bin/python -m tests.bad_input.http_fuzz --requests 300000 --seed 1

sends so many to a daemon of its own, one connection each, and fails if the daemon's log says that
it was at fault. `test_http_fuzz.py` does the same with a few.
"""

from __future__ import annotations

import argparse
import base64
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from random import Random

from tests.daemons import Daemon, Loop, open_daemon
from tests.wire_peers import open_tcp

_METHODS = [
    b"GET",
    b"GET",
    b"GET",
    b"HEAD",
    b"POST",
    b"PUT",
    b"OPTIONS",
    b"PROPFIND",
    b"x",
    b"G\0T",
]
_PATHS = [
    b"/",
    b"/",
    b"/livez",
    b"/metrics",
    b"/readyz",
    b"//[",
    b"//]",
    b"//[::1",
    b"http://[/",
    b"http://localhost/livez",
    b"//\xff",
    b"/%00",
    b"/\0",
    b"*",
    b"?",
    b"#",
    b"",
    b"/livez?[",
    b"//a:b@[c/livez",
    b"/" + b"a" * 9000,
    b"//\xe2\x84\x80/",
    b"http:///livez",
    b"//[v1.x]/",
]
_VERSIONS = [b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2", b"HTTP/0.9", b"", b"x"]
_HEADERS = [
    b"Host: localhost",
    b"Host: evil.example",
    b"Host: [",
    b"Host: \xff",
    b"Host: a:b:c",
    b"Host: [::1]:x",
    b"Host:",
    b"Origin: http://[",
    b"Origin: \xff\xfe",
    b"Origin: null",
    b"Origin: http://localhost:7892",
    b"Origin: http://localhost:\xb2",
    b"Content-Length: 1",
    b"Content-Length: 0",
    b"Content-Length: -1",
    b"Content-Length: 99999999999999999999999",
    b"Content-Length: \xb2",
    b"Transfer-Encoding: chunked",
    b"Expect: 100-continue",
    b"Authorization: Bearer \xff\x80",
    b"Authorization: Bearer",
    b"Authorization: Basic \xff",
    b"Authorization: Basic ====",
    b"Authorization: Basic " + base64.b64encode(b"x:\xed\xa0\x80"),
    b"Authorization: Basic " + base64.b64encode("x:é€\0".encode()),
    b"Authorization: \xe9",
    b"Forwarded: for=\xff",
    b"X-Forwarded-\xff: x",
    b"X-Forwarded-For: [",
    b"Connection: Upgrade",
    b"Connection: \xff, Upgrade",
    b"Connection: keep-alive",
    b"Upgrade: websocket",
    b"Upgrade: h2c",
    b"Upgrade: ,,,",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Version: \xb2",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    b"Sec-WebSocket-Key: \xff",
    b"Sec-WebSocket-Key: x",
    b"Sec-WebSocket-Protocol: ,\xff",
    b"Sec-WebSocket-Extensions: permessage-deflate; =",
    b"Cookie: " + b"x" * 5000,
    b": empty",
    b" folded",
    b"no colon",
    b"Nul: \0",
]
_UPGRADE = [
    b"Host: localhost",
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
]
_LINE_ENDS = [b"\r\n"] * 12 + [b"\n", b"\r", b"\r\r\n"]
_INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"clientId":"fuzz","auth":%s}}'
)
_AUTHS = [
    b'{"token":"x"}',
    rb'{"token":"\ud800"}',
    '{"token":"é€\\u0000"}'.encode(),
    b'{"token":1}',
    b"[]",
    b"null",
    b'{"token":"\xff"}',
]


def requests(seed: int) -> Iterator[list[bytes]]:
    """Yield requests without end, each as the chunks in which it is to be sent."""
    random = Random(seed)
    while True:
        yield _cut(_request(random), random)


def _request(random: Random) -> bytes:
    kind = random.randrange(10)
    if kind == 0:
        return random.choice([b"{", b"[", b" ", b"G", b"\x80", b"\0"]) + random.randbytes(60)
    if kind == 1:
        return _INITIALIZE % random.choice(_AUTHS) + random.choice(_LINE_ENDS)
    head = _head(random, is_upgrade=kind > 5)
    if random.randrange(3) == 0:
        head = _mutated(head, random)
    return head + _behind(random)


def _head(random: Random, *, is_upgrade: bool) -> bytes:
    """Return the head of a request; a third of the upgrades is a valid one."""
    if is_upgrade:
        lines = [b"GET / HTTP/1.1", *_UPGRADE]
        for _ in range(random.randrange(3)):
            lines.insert(random.randrange(1, len(lines)), random.choice(_HEADERS))
    else:
        parts = (random.choice(each) for each in (_METHODS, _PATHS, _VERSIONS))
        lines = [b" ".join(parts), *random.choices(_HEADERS, k=random.randrange(8))]
    if random.randrange(50) == 0:
        lines += [b"X-%d: y" % number for number in range(200)]
    ends = [b"\r\n"] if random.randrange(4) else _LINE_ENDS
    return b"".join(line + random.choice(ends) for line in [*lines, b""])


def _behind(random: Random) -> bytes:
    """Return what follows the head in the same stream."""
    pieces = (_behind_once(random) for _ in range(random.randrange(4)))
    return b"".join(pieces)


def _behind_once(random: Random) -> bytes:
    kind = random.randrange(6)
    if kind == 0:
        return b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    if kind == 1:
        return _INITIALIZE % random.choice(_AUTHS) + b"\n"
    if kind == 2:
        return random.randbytes(random.randrange(40))
    if kind == 3:
        return _frame(0x81, _INITIALIZE % random.choice(_AUTHS), random)
    opcode = random.choice([0x80, 0x00, 0x01, 0x81, 0x82, 0x88, 0x08, 0x89, 0x8A, 0x83, 0xC1])
    return _frame(opcode, random.randbytes(random.choice([0, 1, 2, 10, 125, 126, 130])), random)


def _frame(first: int, data: bytes, random: Random) -> bytes:
    size = len(data)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack("!H", size)
    if random.randrange(8) == 0:
        length = random.choice([b"\x7f", b"\xff" * 9, b"\xfe\0\x01", b"\xff" + b"\0" * 7 + b"\x01"])
    mask = random.randbytes(4)
    body = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
    return bytes([first]) + length + mask + body


def _mutated(data: bytes, random: Random) -> bytes:
    """Return the bytes with a few of them changed, dropped or doubled."""
    changed = bytearray(data)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(changed))
        kind = random.randrange(4)
        if kind == 0:
            changed[at] = random.randrange(256)
        elif kind == 1:
            del changed[at : at + random.randrange(1, 8)]
        elif kind == 2:
            changed[at:at] = changed[at : at + random.randrange(20)]
        else:
            changed[at:at] = random.choice([b"\0", b"\r\n", b"\xff", b"[", b"]", b":", b" ", b"%"])
        if not changed:
            return b"G"
    return bytes(changed)


def _cut(data: bytes, random: Random) -> list[bytes]:
    if random.randrange(3):
        return [data]
    at = random.randrange(1, len(data) + 1)
    return [each for each in (data[:at], data[at:]) if each]


def send(daemon: Daemon, chunks: list[bytes]) -> None:
    """Send one request over a connection of its own and wait for what the daemon does."""
    with open_tcp(daemon.port) as sock:
        try:
            for chunk in chunks:
                sock.sendall(chunk)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65_536):
                pass
        except OSError:
            pass  # the daemon closed first; its log says why


def main() -> int:
    """Send the requests that the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loop", choices=["uvloop", "asyncio", "trio"], default="uvloop")
    options = parser.parse_args()
    loop: Loop = options.loop
    end = time.monotonic() + 3600
    with open_daemon(loop) as daemon:
        daemon.is_blamed = True  # this prints what is wrong itself
        for number, chunks in enumerate(requests(options.seed)):
            if number == options.requests or time.monotonic() > end:
                break
            send(daemon, chunks)
            if number % 1000 == 0 and (faults := daemon.faults()):
                print(f"within the last 1000 before {number}:", *faults[:3], sep="\n")
                return 1
        print(f"{number} requests, pid {os.getpid()}: {len(daemon.faults())} faults")
        return 1 if daemon.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
