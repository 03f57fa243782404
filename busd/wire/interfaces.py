"""The interfaces a connection uses: its transport, framer, session and meter.

Each has a null object, for a connection that is being created or closed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from busd.errors import ProtocolViolation


class Transport(Protocol):
    """Transfers the bytes of a connection; asyncio's transports have this interface."""

    def write(self, data: bytes) -> None: ...
    def writelines(self, list_of_data: Iterable[bytes]) -> None: ...
    def write_eof(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class NoTransport:
    """The transport of a connection that is still being created; does nothing."""

    __slots__ = ()

    def write(self, data: bytes) -> None: ...
    def writelines(self, list_of_data: Iterable[bytes]) -> None: ...
    def write_eof(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class Framer(Protocol):
    """Turns bytes into frames and back: lines, WebSocket, or not decided yet.

    `feed` does little work per step: it returns a short list, or an iterator that parses lazily.
    After a None among the frames, the connection checks the clock. Empty frames are ignored.
    """

    violation: ProtocolViolation | None  # set by feed(): the stream cannot continue
    wants_flush: bool  # set by feed(): the framer has bytes of its own to send (a pong)
    has_pings: bool

    @property
    def held_bytes(self) -> int:
        """The size of an incomplete frame."""

    def allow(self, max_frame_bytes: int) -> None: ...
    def feed(self, data: bytes) -> Iterable[bytes | None]:
        """Return the frames of a chunk; `violation` is set after the last of them."""

    def encode(self, frames: list[bytes]) -> list[bytes]: ...
    def encode_close(self, code: int, reason: str) -> list[bytes]: ...
    def encode_ping(self) -> list[bytes]: ...


class Discard:
    """The framer of a connection that is closing: discards all input."""

    __slots__ = ()
    violation: ProtocolViolation | None = None
    wants_flush = False
    has_pings = False
    held_bytes = 0

    def allow(self, max_frame_bytes: int) -> None: ...

    def feed(self, data: bytes) -> list[bytes]:
        return []

    def encode(self, frames: list[bytes]) -> list[bytes]:
        return []

    def encode_close(self, code: int, reason: str) -> list[bytes]:
        return []

    def encode_ping(self) -> list[bytes]:
        return []


class FrameReceiver(Protocol):
    """What receives the frames of a connection."""

    def receive(self, frame: bytes, /) -> None: ...
    def on_violation(self, violation: ProtocolViolation, /) -> None: ...
    def on_end(self) -> None: ...
    def on_flushed_after_end(self) -> None: ...
    def on_lost(self, reason: str, /) -> None: ...
    def on_fault(self) -> None: ...


class Meter(Protocol):
    """Counts bytes in memory for all connections of one identity; returns True if too many."""

    def add_unread(self, size: int, /) -> bool: ...
    def add_held(self, size: int, /) -> bool: ...


class NoMeter:
    """Counts nothing."""

    def add_unread(self, size: int) -> bool:
        return False

    def add_held(self, size: int) -> bool:
        return False


NO_METER = NoMeter()
