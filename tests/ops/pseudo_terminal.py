"""A pseudo-terminal for the tests: a command that believes somebody sits before it."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import select
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from tests.daemons import PATIENCE_SECONDS
from tests.ops.terminal import BUSD, Terminal

CTRL_C, CTRL_D, BACKSPACE, UP = "\x03", "\x04", "\x7f", "\x1b[A"


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
        self.found = self.mode()
        self.shown = ""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.process = subprocess.Popen(
            [*command, *args],
            stdin=self._its,
            stdout=self._its,
            stderr=self._its,
            env={**terminal.environment, "TERM": "dumb", **environment},
            cwd=terminal.folder,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
        )

    def __enter__(self) -> PseudoTerminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self._its)

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def type(self, line: str) -> None:
        self.press(line + "\r")

    def read_until(self, words: str) -> str:
        """Return what was shown since the last time, up to and with `words`."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while words not in self.shown:
            left = deadline - time.monotonic()
            readable, _, _ = select.select([self.ours], [], [], max(0, left))
            assert readable, f"{words!r} was not shown:\n{self.shown}"
            self.shown += self._decode(os.read(self.ours, 65_536))
        found, _, self.shown = self.shown.partition(words)
        return found + words

    def paste(self, text: str) -> None:
        """Paste text, as a terminal does for a program that wants to know of pastes."""
        self.press(f"\x1b[200~{text}\x1b[201~")

    def mode(self) -> list[Any]:
        """Return the terminal's settings, and whether to read from it waits."""
        return [*termios.tcgetattr(self.ours), os.get_blocking(self._its)]

    def is_echoing(self) -> bool:
        """Whether the terminal was left as a shell needs it."""
        return bool(termios.tcgetattr(self.ours)[3] & termios.ECHO)

    def reset(self) -> None:
        """Set the terminal as it was found."""
        termios.tcsetattr(self.ours, termios.TCSANOW, self.found[:7])

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so, of which nobody tells."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def end(self) -> tuple[int, str]:
        """Wait for the end; give the exit code and what was not read before."""
        code = self.process.wait(PATIENCE_SECONDS)
        while select.select([self.ours], [], [], 0)[0]:
            self.shown += self._decode(os.read(self.ours, 65_536))
        return code, self.shown
