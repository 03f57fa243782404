"""What is typed into `busd chat`: edited lines with a history on a terminal, plain ones in a pipe.

Between turns a terminal's lines come from readline, which blocks: it has a thread, which may be
left alone with the last line. During a turn they are read as they come, so that `/stop` is heard.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import click

from busd.errors import BusdError
from busd.wire.places import state_directory

PROMPT = "> "
_HISTORY_LINES = 1_000
_MAX_HISTORY_CHARACTERS = 4_096  # of a line that is remembered
_MAX_LINE_BYTES = 1 << 20  # more than a bus takes in one message by default
_CHUNK_BYTES = 1 << 16
_PREPARE_SECONDS = 0.5
_END_OF_PASTE_MODE = "\x1b[?2004l"


class ChatInput:
    """The lines of standard input, one at a time; None is its end."""

    def __init__(self) -> None:
        self._file = sys.stdin.fileno()
        self._buffer = bytearray()
        self._has_ended = False
        self.is_edited = sys.stdin.isatty() and sys.stdout.isatty()
        self.is_editing = False  # a prompt is on the screen, and perhaps half a line
        self._is_prepared = threading.Event()  # readline has taken the terminal over

    @contextmanager
    def open(self) -> Iterator[None]:
        """Keep the history, and give the terminal back as it was."""
        if not self.is_edited:
            yield
            return
        import termios

        before = termios.tcgetattr(self._file)
        history = _History(self._is_prepared.set)
        try:
            yield
        finally:
            history.save()
            if self.is_editing and history.is_kept:
                self._is_prepared.wait(_PREPARE_SECONDS)  # else it would do so after us
            termios.tcsetattr(self._file, termios.TCSADRAIN, before)
            if self.is_editing:  # left in the middle of a line
                is_plain = not history.is_kept or os.environ.get("TERM", "dumb") == "dumb"
                print("" if is_plain else _END_OF_PASTE_MODE, flush=True)

    def typed_so_far(self) -> str:
        """Give what stands behind the prompt now."""
        if "readline" not in sys.modules:
            return ""
        import readline

        return readline.get_line_buffer()

    async def edit(self) -> str | None:
        """Show a prompt and give the line that is typed there; may be left waiting."""
        found: list[str | UnicodeError | None] = []

        def read() -> None:
            try:
                found.append(input(PROMPT))
            except EOFError:
                found.append(None)
            except UnicodeError as problem:
                found.append(problem)
            os.close(told)

        await anyio.lowlevel.checkpoint()  # whoever leaves now leaves the terminal as it is
        heard, told = os.pipe()
        self.is_editing = True
        self._is_prepared.clear()
        # Not one of anyio's: those are waited for at the end, and this one waits for a person.
        threading.Thread(target=read, daemon=True).start()
        try:
            await anyio.wait_readable(heard)
        finally:
            os.close(heard)
        self.is_editing = False
        [line] = found
        if isinstance(line, UnicodeError):
            raise line
        if line is None:
            print()  # below the prompt
            return None
        _remember(line)
        return self._take_rest() + line

    async def read(self) -> str | None:
        """Give the next line as it comes; may be cancelled without loss."""
        while (end := self._buffer.find(b"\n")) < 0:
            if self._has_ended:
                return self._take_rest() or None
            await self._wait_for_more()
            chunk = self._read_chunk()
            self._buffer += chunk
            self._has_ended = not chunk
            if len(self._buffer) > _MAX_LINE_BYTES:
                raise click.UsageError(f"a line of over {_MAX_LINE_BYTES:,} bytes is no message")
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


class _History:
    """The lines typed before, in the state directory, for nobody else to read."""

    def __init__(self, on_prompt: Callable[[], None]) -> None:
        self._path = state_directory() / "chat_history"
        try:
            import readline
        except ImportError:
            self.is_kept = False  # this Python was built without: the terminal's own editing
            return
        self.is_kept = True
        readline.set_pre_input_hook(on_prompt)
        readline.set_auto_history(False)
        readline.set_history_length(_HISTORY_LINES)
        try:
            readline.read_history_file(self._path)
        except OSError:
            return  # the first chat, or a file we may not read

    def save(self) -> None:
        """Write the file; a history that cannot be kept is no reason to complain at the end."""
        if not self.is_kept:
            return
        import readline

        try:
            _make_private(self._path)
            readline.write_history_file(self._path)
        except OSError:
            return


def _remember(line: str) -> None:
    if "readline" not in sys.modules or not line.strip() or len(line) > _MAX_HISTORY_CHARACTERS:
        return
    import readline

    readline.add_history(line)


def _make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    path.chmod(0o600)
