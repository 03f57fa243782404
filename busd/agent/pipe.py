"""Pipes to and from a program; ours to close, whoever still holds the other end."""

from __future__ import annotations

import contextlib
import os

import anyio

_CHUNK_BYTES = 64 * 1024


class Pipe:
    """Two ends: `near` is ours, `far` the program's, to be closed here once it has it."""

    def __init__(self, near: int, far: int) -> None:
        self.near = near
        self.far = far
        os.set_blocking(far, True)
        self._open = {near, far}

    def close_far(self) -> None:
        self._close(self.far)

    def close_near(self) -> None:
        if self.near in self._open:
            anyio.notify_closing(self.near)  # whoever still waits for it waits in vain
            self._close(self.near)

    def close(self) -> None:
        self.close_far()
        self.close_near()

    def _close(self, end: int) -> None:
        if end in self._open:
            self._open.discard(end)
            os.close(end)


class PipeFrom(Pipe):
    """What a program writes."""

    def __init__(self) -> None:
        near, far = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        super().__init__(near, far)

    async def read(self) -> bytes:
        """Return what was written, b"" when nothing more will be."""
        try:
            await anyio.wait_readable(self.near)
        except anyio.ClosedResourceError:
            return b""
        return os.read(self.near, _CHUNK_BYTES)


class PipeTo(Pipe):
    """What a program reads."""

    def __init__(self) -> None:
        far, near = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        super().__init__(near, far)

    async def write(self, content: bytes) -> None:
        """Write all of it, or as much as is read."""
        left = memoryview(content)
        with contextlib.suppress(BrokenPipeError, anyio.ClosedResourceError):
            while left:
                await anyio.wait_writable(self.near)
                left = left[os.write(self.near, left[:_CHUNK_BYTES]) :]
