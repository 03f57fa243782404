"""Clients that want to keep others out: by work, by silence, or by not reading."""

from __future__ import annotations

import logging
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from busd.gateway.settings import ClientLimits
from tests.gateway.host.clients import echo
from tests.gateway.host.hosts import RunningHost, open_host, raw, web

pytestmark = pytest.mark.anyio

UPGRADE = (
    b"GET %s HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
POLLING = b"/socket.io/?EIO=4&transport=websocket"
CHUNKED = b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
# What one turn of the loop may take of the processor. It takes 20 ms.
TURN_SECONDS = 0.1


class Watch:
    """Notes how long the longest turn of the loop was, in time of its processor."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.turns = 0

    async def look(self) -> None:
        before = time.thread_time()
        while True:
            await anyio.lowlevel.checkpoint()
            now = time.thread_time()
            self.longest, before = max(self.longest, now - before), now
            self.turns += 1


@asynccontextmanager
async def watching() -> AsyncIterator[Watch]:
    watch = Watch()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.look)
        yield watch
        tasks.cancel_scope.cancel()


async def in_thread(function: Callable[..., Any], *given: Any) -> Any:
    return await anyio.to_thread.run_sync(lambda: function(*given))


def send_until_stuck(sock: socket.socket, data: bytes) -> None:
    """Send until the other end has not read anything for a moment."""
    sock.settimeout(0.5)
    try:
        while sock.send(data):
            pass
    except OSError:  # no room, or closed
        sock.settimeout(20)


def text_frame(content: bytes) -> bytes:
    return bytes((0x81, 0x80 | len(content))) + b"\0\0\0\0" + content


def open_web_socket(host: RunningHost, path: bytes) -> socket.socket:
    sock = raw(host)
    sock.sendall(UPGRADE % path)
    assert b" 101 " in sock.recv(4096)
    return sock


async def is_served(host: RunningHost) -> bool:
    async with web(host) as client:
        return (await client.get("/healthz")).status_code == 200


async def test_a_body_of_tiny_chunks_does_not_hold_others_up(host: RunningHost) -> None:
    with raw(host) as sock:
        async with watching() as watch:
            await in_thread(send_until_stuck, sock, CHUNKED + b"1\r\nx\r\n" * 100_000)
            assert await is_served(host)
        assert watch.longest < TURN_SECONDS


async def test_requests_with_many_headers_are_slowed_down(host: RunningHost) -> None:
    started_at = time.monotonic()
    async with web(host, headers=[("x", "y")] * 900) as client:
        for _ in range(4):
            assert (await client.get("/healthz")).status_code == 200
    assert time.monotonic() - started_at > 1.5  # 1,000 lines at once, then 1,000 per second


async def test_packets_without_a_message_do_not_hold_others_up(host: RunningHost) -> None:
    with await in_thread(open_web_socket, host, POLLING) as sock:
        async with watching() as watch:
            await in_thread(send_until_stuck, sock, text_frame(b"3") * 100_000)
            assert await is_served(host)
        assert watch.longest < TURN_SECONDS


async def test_packets_without_a_message_are_slowed_down(host: RunningHost) -> None:
    with await in_thread(open_web_socket, host, POLLING) as sock:
        started_at = time.monotonic()
        sock.sendall(text_frame(b"3") * 70 + text_frame(b"2last"))
        seen = b""
        while b"3last" not in seen:
            seen += await in_thread(sock.recv, 65_536)
        assert time.monotonic() - started_at > 1.5  # 50 at once, then 10 per second


@pytest.mark.parametrize("last", [b"GET /large", b"\0"], ids=["goes on", "is refused"])
async def test_a_client_that_reads_no_answers_is_awaited_and_closed(
    anyio_backend: object, last: bytes
) -> None:
    ending = b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with open_host(extra_routes=[Route("/large", large_answer)]) as host:
        sockets = host.host.sockets
        with raw(host) as sock:
            sock.sendall(b"GET /large" + ending + last + ending)
            # It may go on: nothing has to be read for the first answer but its beginning.
            await host.until(lambda: sockets.count == len(sockets.awaited) == 1)
            for _ in range(10):  # its deadlines
                for connection in list(sockets.awaited):
                    connection.expire()
            await host.until(lambda: sockets.count == 0)


async def large_answer(request: Request) -> Response:
    return Response(b"x" * 16_000_000)  # more than the kernel takes


async def test_closed_web_sockets_do_not_keep_others_out(anyio_backend: object) -> None:
    async with open_host(ClientLimits(clients=1)) as host:
        left = []
        for _ in range(host.host.sockets.limit + 8):
            sock = await in_thread(open_web_socket, host, b"/ws/echo")
            sock.sendall(text_frame(b'{"do":"close"}'))
            left.append(sock)  # they do not answer that they close it, too
        assert await is_served(host)
        for sock in left:
            sock.close()


def ask_all(host: RunningHost, count: int) -> set[bytes]:
    """Connect so many times, and only then ask each time; return how the answers begin."""
    with ExitStack() as opened:
        socks = [opened.enter_context(raw(host)) for _ in range(count)]
        for sock in socks:
            sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return {sock.recv(12) for sock in socks}


async def test_clients_that_come_all_at_once_are_all_served(host: RunningHost) -> None:
    """As they do when a gateway comes back."""
    assert len(await in_thread(ask_all, host, 300)) == 1


async def test_a_lost_client_is_charged_for_nothing(host: RunningHost, ann: str) -> None:
    async with echo(host, ann) as client:
        connection: Any = next(iter(host.clients._lines))
        sock = client.transport.get_extra_info("socket").dup()
        with sock:
            sock.setblocking(True)
            pings = bytes((0x89, 0x80)) + b"\0\0\0\0"
            await in_thread(send_until_stuck, sock, pings * 50_000)
            await host.until(lambda: host.clients.places.held_bytes > 0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.abort()
        await host.until(lambda: connection.is_lost)
        await host.until(lambda: not connection._is_put_off)
        assert host.clients.places.held_bytes == 0


async def test_a_request_in_many_pieces_is_one_request(host: RunningHost) -> None:
    """Pipelined requests with bodies, longer than a piece, are all answered in their order."""
    one = b"POST /%s HTTP/1.1\r\nHost: localhost\r\nX: %s\r\nContent-Length: 40000\r\n\r\n%s"
    names = [b"first", b"second", b"third"]
    with raw(host) as sock:
        data = b"".join(one % (name, b"y" * 3_000, b"z" * 40_000) for name in names)
        await in_thread(sock.sendall, data + CHUNKED + b"5\r\nhello\r\n0\r\n\r\n")
        seen = b""
        while b"405 " not in seen:
            received = await in_thread(sock.recv, 65_536)
            assert received, seen
            seen += received
        at = [seen.index(b"'/%s'" % name) for name in names]
        assert at == sorted(at)


async def test_a_request_with_two_lengths_is_refused_with_all_that_follows(
    anyio_backend: object,
) -> None:
    """The other length hides a request that a proxy would have sent in its own name."""
    both = CHUNKED[:-2] + b"Content-Length: 60\r\n\r\n0\r\n\r\n"
    async with open_host(identify_loopback=True) as host:
        with raw(host) as sock:
            sock.sendall(both + b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
            seen = b""
            while received := await in_thread(sock.recv, 65_536):
                seen += received
    assert seen.startswith(b"HTTP/1.1 400 ")
    assert seen.count(b"HTTP/1.1") == 1
    assert b"version" not in seen


async def test_a_malformed_body_is_no_fault_of_ours(
    host: RunningHost, caplog: pytest.LogCaptureFixture
) -> None:
    with raw(host) as sock:
        sock.sendall(CHUNKED + b"no length\r\n")
        seen = b""
        while received := await in_thread(sock.recv, 65_536):
            seen += received
    assert seen.startswith(b"HTTP/1.1 400 ")
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
