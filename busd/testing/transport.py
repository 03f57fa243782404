"""A transport in memory: what asyncio's does with a socket, done with two queues."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from busd.wire.connection import Connection


class Soon:
    """Runs actions one after the other, never nested, as an event loop does."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()
        self._is_running = False

    def run(self, action: Callable[[], object]) -> None:
        """Run `action`, now or after the running one, and then all actions that it causes."""
        self._waiting.append(action)
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._waiting:
                self._waiting.popleft()()
        finally:
            self._is_running = False


class FarEnd(Protocol):
    """Receives what the bus writes."""

    def on_bytes(self, data: bytes) -> None: ...
    def on_end(self) -> None: ...


class MemoryTransport:
    """Carries bytes between one connection of the bus and the far end.

    While the far end does not read, what the bus writes waits here and counts as
    `waiting_bytes`, exactly as asyncio counts what the kernel does not accept.
    """

    def __init__(self, connection: Connection, far_end: FarEnd, soon: Soon) -> None:
        self._connection = connection
        self._far_end = far_end
        self._soon = soon
        self._to_bus: deque[bytes | None] = deque()  # None is the end of the stream
        self._to_far_end: deque[bytes] = deque()
        self._high = 65_536
        self._is_writing_paused = False
        self._is_closing = False
        self._is_closed = False
        self._has_eof = False
        self.is_read_by_bus = True
        self.is_read_by_far_end = True
        self.waiting_bytes = 0
        self.written_bytes = 0
        connection.connection_made(self)

    @property
    def is_open(self) -> bool:
        """False once the bus has dropped the connection or was notified of its loss."""
        return not self._is_closed

    # For the far end

    def feed(self, data: bytes) -> None:
        """Send `data` to the bus; it waits while the bus does not read."""
        self._to_bus.append(data)
        self._soon.run(self._deliver_to_bus)

    def feed_eof(self) -> None:
        """Send the bus the end of the stream."""
        self._to_bus.append(None)
        self._soon.run(self._deliver_to_bus)

    def lose(self, problem: BaseException | None = None) -> None:
        """Drop the connection; bytes in transit are lost in both directions."""
        self._soon.run(lambda: self._end(problem))

    def read(self, *, is_wanted: bool) -> None:
        """Start or stop reading what the bus writes."""
        self.is_read_by_far_end = is_wanted
        self._soon.run(self._deliver_to_far_end)

    def _deliver_to_bus(self) -> None:
        while self._to_bus and self.is_read_by_bus and not self._is_closed:
            data = self._to_bus.popleft()
            if data is not None:
                self._connection.data_received(data)
            elif not self._connection.eof_received():
                self.close()

    def _deliver_to_far_end(self) -> None:
        while self._to_far_end and self.is_read_by_far_end:
            data = self._to_far_end.popleft()
            self.waiting_bytes -= len(data)
            self._far_end.on_bytes(data)
        if self._is_writing_paused and self.waiting_bytes <= self._high // 4:
            self._is_writing_paused = False
            self._connection.resume_writing()
        if self._to_far_end:
            return
        if self._has_eof and not self._is_closed:
            self._far_end.on_end()
        if self._is_closing:
            self._soon.run(lambda: self._end(None))

    def _end(self, problem: BaseException | None) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._to_bus.clear()
        self._to_far_end.clear()
        self.waiting_bytes = 0
        self._connection.connection_lost(problem)
        self._far_end.on_end()

    # For the connection: asyncio's transport

    def write(self, data: bytes) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[bytes]) -> None:
        if self._has_eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._is_closed or self._is_closing:
            return
        for data in list_of_data:
            if data:
                self._to_far_end.append(data)
                self.written_bytes += len(data)
                self.waiting_bytes += len(data)
        self._deliver_to_far_end()
        if self.waiting_bytes > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self._connection.pause_writing()

    def write_eof(self) -> None:
        self._has_eof = True
        self._deliver_to_far_end()

    def close(self) -> None:
        """Close when all is written."""
        self._is_closing = True
        self._deliver_to_far_end()

    def abort(self) -> None:
        """Close now; the connection is notified after its current call."""
        self._soon.run(lambda: self._end(None))

    def pause_reading(self) -> None:
        self.is_read_by_bus = False

    def resume_reading(self) -> None:
        if not self.is_read_by_bus:
            self.is_read_by_bus = True
            self._soon.run(self._deliver_to_bus)

    def get_write_buffer_size(self) -> int:
        return self.waiting_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = self._high if high is None else high
