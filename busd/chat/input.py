"""What is typed into `busd chat`: lines of a pipe, or keys pressed on a terminal.

Between turns a terminal's lines come from the prompt, which readline edits. During a turn its
keys are read as they come, so that `/stop` is heard.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import anyio
import anyio.lowlevel
import click

from busd.chat.keys import CLEAR_LINE, MAX_LINE_BYTES, PASTE_OFF, PASTE_ON, Keys, shown
from busd.errors import BusdError

if TYPE_CHECKING:
    from busd.chat.prompt import Prompt

Mode = Literal["as found", "prompt", "keys"]
_CHUNK_BYTES = 1 << 16


class ChatInput:
    """The lines of standard input, one at a time; None is its end."""

    def __init__(self) -> None:
        self._file = sys.stdin.fileno()
        self._buffer = bytearray()
        self._has_ended = False
        self.is_edited = sys.stdin.isatty() and sys.stdout.isatty()
        self.on_echo: Callable[[str], None] = lambda text: None
        self._prompt: Prompt | None = None  # on a terminal
        self._keys = Keys()
        self._mode: Mode = "as found"

    @contextmanager
    def open(self) -> Iterator[None]:
        """Keep the history, and give the terminal back as it was."""
        if not self.is_edited:
            yield
            return
        import termios

        from busd.chat.prompt import Prompt, knows_paste

        self._found = termios.tcgetattr(self._file)
        self._file = _open_again(self._file)
        self._knows_paste = knows_paste()
        self._prompt = Prompt(knows_paste=self._knows_paste)
        try:
            yield
        finally:
            self._prompt.close()
            is_mid_line = self.is_editing
            self._set_mode("as found")
            if is_mid_line:
                print(flush=True)
            if self._file != sys.stdin.fileno():
                os.close(self._file)

    @property
    def is_editing(self) -> bool:
        """A prompt is on the screen, and perhaps half a line."""
        return self._prompt is not None and self._prompt.is_open

    def typed_so_far(self) -> str:
        """Return the half line that is on the screen, without the prompt."""
        if self._prompt is not None and self._prompt.is_open:
            return self._prompt.typed_so_far()
        return shown(self._keys.text)

    def clear_line(self) -> bool:
        """Forget a line that is half typed during a turn; returns whether there was one."""
        return bool(self._keys.clear())

    def resume(self) -> None:
        """Take the terminal over again: the shell had it while we were suspended."""
        if self._mode == "keys":
            self._mode = "as found"
            self._set_mode("keys")

    async def edit(self) -> str | None:
        """Show a prompt and return the line that is typed there; may be left waiting.

        Ctrl-C clears a line that is half typed; on an empty one it raises Exit.
        """
        from busd.chat.prompt import INTERRUPTED

        assert self._prompt is not None
        if self._keys.lines:
            return self._keys.lines.popleft()
        self._set_mode("prompt")
        beginning = self._keys.hand_over()
        if beginning:
            self.on_echo(CLEAR_LINE)  # the prompt shows it again
        line = await self._prompt.read(beginning)
        while line is not None and line.endswith(INTERRUPTED):
            if line == INTERRUPTED:
                raise click.exceptions.Exit(128 + signal.SIGINT)
            line = await self._prompt.read()
        return line

    async def read(self) -> str | None:
        """Return the next line as it comes; may be cancelled without loss."""
        return await (self._read_keys() if self.is_edited else self._read_line())

    async def _read_keys(self) -> str | None:
        self._set_mode("keys")
        while not self._keys.lines:
            if self._keys.has_ended:
                return None
            await anyio.wait_readable(self._file)
            self.on_echo(self._keys.feed(self._read_chunk()))
        return self._keys.lines.popleft()

    async def _read_line(self) -> str | None:
        while (end := self._buffer.find(b"\n")) < 0:
            if self._has_ended:
                return self._take_rest() or None
            await self._wait_for_more()
            chunk = self._read_chunk()
            self._buffer += chunk
            self._has_ended = not chunk
            if len(self._buffer) > MAX_LINE_BYTES:
                raise click.UsageError(f"a line of over {MAX_LINE_BYTES:,} bytes is no message")
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
            await anyio.lowlevel.checkpoint()  # a plain file: there is nothing to wait for

    def _take_rest(self) -> str:
        rest = self._buffer.decode()
        self._buffer.clear()
        return rest

    def _set_mode(self, mode: Mode) -> None:
        """Have the terminal edit and echo lines, as it was found, or hand over every key."""
        if mode == self._mode:
            return
        import termios

        assert self._prompt is not None
        self._mode = mode
        wanted = [*self._found[:6], [*self._found[6]]]
        if mode == "prompt":
            self._prompt.adapt(wanted)
        elif mode == "keys":
            wanted[0] &= ~termios.ICRNL  # a paste may have both, and mean one line end
            wanted[3] &= ~(termios.ICANON | termios.ECHO)
            wanted[6][termios.VMIN], wanted[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._file, termios.TCSADRAIN, wanted)
        if self._knows_paste and not (mode == "prompt" and self._prompt.is_gnu):
            print(PASTE_ON if mode == "keys" else PASTE_OFF, end="", flush=True)


def _open_again(terminal: int) -> int:
    """Return a file of our own for a terminal, or the same if there is none.

    Whoever waits for a file may make it non-blocking, as uvloop does. The one that we were given
    is also our standard output, and the shell's.
    """
    try:
        return os.open(os.ttyname(terminal), os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return terminal  # one of another container, say
