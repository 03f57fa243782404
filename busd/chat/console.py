"""Where a chat reads and prints: a pipe or a simple terminal (here), or `busd.chat.terminal`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import anyio
import anyio.lowlevel
import click

from busd.errors import BusdError

PROMPT = "> "
MAX_LINE_BYTES = 1 << 20  # more than a bus takes in one message by default
_CHUNK_BYTES = 1 << 16


class Console(Protocol):
    """Reads messages and prints answers."""

    is_interactive: bool  # a person types here and reads the answers

    def open(self) -> AbstractContextManager[None]:
        """Return a context manager that restores the terminal and saves the history."""

    async def read(self) -> str | None:
        """Return the next message, None at the end of input or after `close`."""

    def close(self) -> None:
        """End reading: `read` returns None, now and in future."""

    def write(self, write: Callable[[], None]) -> None:
        """Call a function that prints whole lines, as soon as it does not disturb the prompt."""

    def preview(self, text: str) -> None:
        """Show the beginning of a line that is still being streamed."""


def open_console(status: Callable[[], str], on_interrupt: Callable[[], None]) -> Console:
    """Return the console for this standard input and output."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return PipeConsole()
    if is_simple_terminal():
        return LineConsole()
    # Imported here: it takes a while, and scripts do without it.
    from busd.chat.terminal import TerminalConsole

    return TerminalConsole(status, on_interrupt)


def is_simple_terminal() -> bool:
    """Return whether the terminal knows no escape sequences, such as the shell of an editor."""
    return os.environ.get("TERM", "dumb") in ("dumb", "unknown")


class PipeConsole:
    """Reads standard input line by line, and prints at once."""

    is_interactive = False

    def __init__(self) -> None:
        self._file = sys.stdin.fileno()
        self._buffer = bytearray()
        self._has_ended = False

    def open(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        self._buffer.clear()
        self._has_ended = True

    def write(self, write: Callable[[], None]) -> None:
        write()

    def preview(self, text: str) -> None:
        pass  # `Screen.stream` prints it at once

    async def read(self) -> str | None:
        """Return the next line; raise UnicodeError or UsageError if it is no message."""
        while (end := self._buffer.find(b"\n")) < 0:
            if self._has_ended:
                return self._take_rest() or None
            await self._wait_for_more()
            chunk = self._read_chunk()
            self._buffer += chunk
            self._has_ended = not chunk
            check_size(len(self._buffer))
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line.decode().removesuffix("\r")

    def _read_chunk(self) -> bytes:
        try:
            return os.read(self._file, _CHUNK_BYTES)
        except OSError as problem:
            raise BusdError(f"standard input cannot be read: {problem.strerror}") from None

    async def _wait_for_more(self) -> None:
        try:
            await anyio.wait_readable(self._file)
        except PermissionError:
            await anyio.lowlevel.checkpoint()  # a plain file is always readable

    def _take_rest(self) -> str:
        rest = self._buffer.decode()
        self._buffer.clear()
        return rest


class LineConsole(PipeConsole):
    """A terminal that edits lines by itself and can only print."""

    is_interactive = True
    _is_at_prompt = False

    async def read(self) -> str | None:
        self._prompt()
        self._is_at_prompt = True
        line = await super().read()
        self._is_at_prompt = False
        return line

    def write(self, write: Callable[[], None]) -> None:
        if not self._is_at_prompt:
            write()
            return
        click.echo()
        write()
        self._prompt()

    def _prompt(self) -> None:
        click.echo(PROMPT, nl=False)


def check_size(line_bytes: int) -> None:
    """Raise UsageError if a line is too long for a message."""
    if line_bytes > MAX_LINE_BYTES:
        raise click.UsageError(f"a line of over {MAX_LINE_BYTES:,} bytes is no message")
