"""Drive a connected socket: asyncio's own transport where there is one, ours on trio.

On uvloop its transport costs half the CPU of waiting for readability (W3: 6.5 against 11.6 µs per
acked message) and 1.5 KiB per connection instead of the 12 KiB of a reader task; trio has no such
thing, so `SocketTransport` gives it the same shape with one task per connection.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any, Protocol

import anyio
import sniffio
from anyio.abc import TaskGroup

from busd.wire.connection import Transport

_READ_BYTES = 65_536


class Driven(Protocol):
    """What a transport tells things to: a connection, or the TLS in front of one."""

    is_clogged: bool

    def connection_made(self, transport: Transport) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> bool: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def connection_lost(self, exc: BaseException | None) -> None: ...


async def drive(sock: socket.socket, connection: Driven, tasks: TaskGroup) -> None:
    """Let `connection` speak over `sock` until either ends; returns as soon as it is set up."""
    if sniffio.current_async_library() == "asyncio":
        import asyncio

        loop = asyncio.get_running_loop()
        # `Connection` has the methods of an asyncio.Protocol without being asyncio's.
        await loop.connect_accepted_socket(lambda: connection, sock)  # type: ignore[type-var]
        return
    transport = SocketTransport(sock, connection, tasks)
    connection.connection_made(transport)
    tasks.start_soon(transport.pump)


def scheduler() -> Callable[[Callable[[], None]], object]:
    """Give the function that runs another one in the next round of the running loop."""
    if sniffio.current_async_library() == "asyncio":
        import asyncio

        return asyncio.get_running_loop().call_soon
    import trio

    return trio.lowlevel.current_trio_token().run_sync_soon


class Promise(Protocol):
    """Something one task waits for and a transport fulfils: asyncio's future has this shape."""

    def done(self) -> bool: ...
    def set_result(self, result: None, /) -> None: ...
    def __await__(self) -> Generator[Any, Any, None]: ...


def promise_maker() -> Callable[[], Promise]:
    """Give the function that makes a promise on the running loop.

    An anyio.Event does the same for 4 µs on asyncio, a quarter of all a client spends per message.
    """
    if sniffio.current_async_library() == "asyncio":
        import asyncio

        return asyncio.get_running_loop().create_future
    return EventPromise


class EventPromise:
    """asyncio's future for loops without one."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = anyio.Event()

    def done(self) -> bool:
        return self._event.is_set()

    def set_result(self, result: None) -> None:
        self._event.set()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._event.wait().__await__()


class SocketTransport:
    """asyncio's transport for loops without one: direct sends, a writer task only when blocked."""

    def __init__(self, sock: socket.socket, connection: Driven, tasks: TaskGroup) -> None:
        self._sock = sock
        self._connection = connection
        self._tasks = tasks
        self._waiting: deque[memoryview] = deque()  # bytes the kernel would not take yet
        self._waiting_bytes = 0
        self._high = 65_536
        self._is_closed = False
        self._is_writing = False  # a task is at it
        self._is_closing = False  # when all is written
        self._wants_eof = False
        self._may_read = anyio.Event()
        self._may_read.set()

    async def pump(self) -> None:
        """Feed what arrives to the connection until one side has closed."""
        from trio import ClosedResourceError
        from trio.lowlevel import wait_readable  # anyio's finds out each time that this is trio

        try:
            while not self._is_closed:
                if not self._may_read.is_set():  # waiting for a set event costs a whole round
                    await self._may_read.wait()
                    continue  # it may have been closed meanwhile
                await wait_readable(self._sock)
                if not self._read_once():
                    break
        except (OSError, ClosedResourceError):
            pass  # reset by the peer, or aborted by us: both end here
        finally:
            self._is_closed = True
            anyio.notify_closing(self._sock)  # the writer may be waiting for it
            self._sock.close()
            self._connection.connection_lost(None)

    def _read_once(self) -> bool:
        if self._is_closed:
            return False
        try:
            data = self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            return True
        if data:
            self._connection.data_received(data)
            return True
        self.pause_reading()  # until the connection is closed: there is nothing more to read
        if not self._connection.eof_received():
            self.close()  # when all is written
        return True

    def write(self, data: bytes) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[bytes]) -> None:
        """Send at once what the kernel takes; the rest leaves when it can."""
        if self._is_closed:
            return
        for data in list_of_data:
            if self._waiting:
                self._waiting.append(memoryview(data))
                self._waiting_bytes += len(data)
            else:
                self._send(data)
        if self._waiting_bytes > self._high and not self._connection.is_clogged:
            self._connection.pause_writing()

    def _send(self, data: bytes) -> None:
        """Try to send all of `data`; what is left over waits for the writer task."""
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.abort()
            return
        if sent < len(data):
            self._waiting.append(memoryview(data)[sent:])
            self._waiting_bytes += len(data) - sent
            if not self._is_writing:  # else it is its own writing that led here
                self._is_writing = True
                self._tasks.start_soon(self._write_waiting)

    async def _write_waiting(self) -> None:
        try:
            while self._waiting and not self._is_closed:
                await anyio.wait_writable(self._sock)
                self._write_some()
        except (OSError, anyio.ClosedResourceError):
            self.abort()
            return
        finally:
            self._is_writing = False
        if self._wants_eof:
            self.write_eof()
        if self._is_closing:
            self.abort()

    def _write_some(self) -> None:
        data = self._waiting[0]
        sent = self._sock.send(data)
        self._waiting_bytes -= sent
        if sent == len(data):
            self._waiting.popleft()
        else:
            self._waiting[0] = data[sent:]
        if self._connection.is_clogged and self._waiting_bytes <= self._high // 4:
            self._connection.resume_writing()

    def write_eof(self) -> None:
        if self._waiting:
            self._wants_eof = True
        elif not self._is_closed:
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError:
                self.abort()

    def close(self) -> None:
        self._is_closing = True
        if not self._waiting:
            self.abort()

    def abort(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._may_read.set()
            anyio.notify_closing(self._sock)

    def pause_reading(self) -> None:
        if self._may_read.is_set():
            self._may_read = anyio.Event()

    def resume_reading(self) -> None:
        self._may_read.set()

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = self._high if high is None else high
