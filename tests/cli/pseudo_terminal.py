"""A pseudo-terminal for the tests: a command on a terminal, whose screen pyte emulates."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import pyte

from tests.cli.terminal import BUSD, Terminal
from tests.daemons import PATIENCE_SECONDS

CTRL_C, CTRL_D, CTRL_Z, BACKSPACE, UP = "\x03", "\x04", "\x1a", "\x7f", "\x1b[A"
_COLUMNS, _ROWS = 100, 40


class PseudoTerminal:
    """A running `busd` with a screen to read and keys to press."""

    def __init__(
        self,
        terminal: Terminal,
        *args: str,
        command: Sequence[str] = BUSD,
        **environment: str,
    ) -> None:
        self.ours, self._its = pty.openpty()
        _set_size(self._its, _COLUMNS, _ROWS)
        self.found = self.mode()
        self.output = ""  # all that was written, with its escape sequences
        self._screen = _Screen(self.press)
        self._emulator = pyte.Stream(self._screen)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._changed = threading.Condition()
        self._stop, self._is_stopped = os.pipe()
        self._reader = threading.Thread(target=self._read_all)
        self.process = subprocess.Popen(
            [*command, *args],
            stdin=self._its,
            stdout=self._its,
            stderr=self._its,
            env={**terminal.environment, "TERM": "xterm", **environment},
            cwd=terminal.folder,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
        )
        self._reader.start()

    def __enter__(self) -> PseudoTerminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.end()
        for file in (self.ours, self._its, self._stop):
            os.close(file)

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def type(self, line: str) -> None:
        self.press(line + "\r")

    def lines(self) -> list[str]:
        """Return the lines on the screen, without empty ones."""
        return [row.rstrip() for row in self._screen.display if row.strip()]

    def see(self, *lines: str) -> None:
        """Wait until these lines are on the screen, one below the other."""
        wanted = "\n".join(lines)
        self._wait_for(lambda: wanted in "\n".join(self.lines()), wanted)

    def see_prompt(self, typed: str = "") -> None:
        """Wait until the cursor is behind the prompt and what was typed there."""
        wanted = f"> {typed}"
        self._wait_for(lambda: self._line_before_cursor() == wanted, wanted)

    def see_status(self, words: str) -> None:
        """Wait until the last line on the screen has these words."""
        self._wait_for(lambda: words in "".join(self.lines()[-1:]), words)

    def _line_before_cursor(self) -> str:
        cursor = self._screen.cursor
        return self._screen.display[cursor.y][: cursor.x]

    def _wait_for(self, is_shown: Callable[[], bool], wanted: str) -> None:
        with self._changed:
            seen = self._changed.wait_for(is_shown, PATIENCE_SECONDS)
            assert seen, f"{wanted!r} was not shown:\n" + "\n".join(self.lines())

    def _read_all(self) -> None:
        """Read at all times, as terminals do: programs wait for a terminal's answers."""
        while self._stop not in select.select([self.ours, self._stop], [], [])[0]:
            self._read()

    def _read(self) -> None:
        text = self._decode(os.read(self.ours, 65_536))
        with self._changed:
            self.output += text
            self._emulator.feed(text)
            self._changed.notify_all()

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window; the program gets SIGWINCH."""
        with self._changed:
            self._screen.resize(rows, columns)
            _set_size(self.ours, columns, rows)

    def paste(self, text: str) -> None:
        """Paste text, as a terminal does for a program that wants to know of pastes."""
        self.press(f"\x1b[200~{text}\x1b[201~")

    def mode(self) -> list[Any]:
        """Return the terminal's settings, and whether to read from it waits."""
        return [*termios.tcgetattr(self.ours), os.get_blocking(self._its)]

    def is_echoing(self) -> bool:
        """Whether the terminal was left as a shell needs it."""
        return bool(termios.tcgetattr(self.ours)[3] & termios.ECHO)

    def end(self) -> int:
        """Wait for the end, and read what is left; return the exit code."""
        code = self.process.wait(PATIENCE_SECONDS)
        if self._reader.is_alive():
            os.close(self._is_stopped)
            self._reader.join()
        while select.select([self.ours], [], [], 0)[0]:
            self._read()
        return code


class _Screen(pyte.Screen):
    """A screen that answers the program's requests, such as for the cursor's position."""

    def __init__(self, answer: Callable[[str], None]) -> None:
        super().__init__(_COLUMNS, _ROWS)
        self._answer = answer

    def write_process_input(self, data: str) -> None:
        self._answer(data)


def _set_size(file: int, columns: int, rows: int) -> None:
    fcntl.ioctl(file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
