"""The prompt of `busd chat`: lines that are edited by readline, with a history.

Readline blocks, so it has a thread, which may be left alone with the last line. It is in another
thread than signals, too: at the prompt Ctrl-C is a key, and ends the line with itself.
"""

from __future__ import annotations

import os
import sys
import termios
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from busd.chat.keys import PROMPT, shown
from busd.wire.places import state_directory

INTERRUPTED = "\x03"
_HISTORY_LINES = 1_000
_MAX_HISTORY_CHARACTERS = 4_096  # of a line that is remembered
_PREPARE_SECONDS = 0.5
_BINDINGS = (
    r'"\C-x\C-q": quoted-insert',
    r'"\C-c": "\C-e\C-x\C-q\C-c\C-j"',  # to the end of the line, a Ctrl-C there, Enter
    r'"\e[201~": ""',  # the end of a paste whose beginning came during a turn
)


class Prompt:
    """Reads lines from a terminal; `is_open` while one is being typed."""

    def __init__(self, *, knows_paste: bool) -> None:
        self.is_open = False
        self._is_prepared = threading.Event()  # readline has taken the terminal over
        self._path = state_directory() / "chat_history"
        self.is_gnu = False  # readline, not libedit under its name
        try:
            import readline
        except ImportError:
            self.has_readline = False  # this Python was built without: the terminal's own editing
            return
        self.has_readline = True
        self.is_gnu = "libedit" not in (readline.__doc__ or "")
        if self.is_gnu:
            switch = "on" if knows_paste else "off"
            for line in (*_BINDINGS, f"set enable-bracketed-paste {switch}"):
                readline.parse_and_bind(line)
        readline.set_pre_input_hook(self._is_prepared.set)
        readline.set_auto_history(False)
        readline.set_history_length(_HISTORY_LINES)
        try:
            readline.read_history_file(self._path)
        except OSError:
            return  # the first chat, or a file we may not read

    def adapt(self, mode: list[Any]) -> None:
        """Change a terminal's mode to the one in which readline is started."""
        if self.is_gnu:
            mode[3] &= ~termios.ICANON  # else a Ctrl-D that comes before readline is lost
            mode[6][termios.VINTR] = b"\0"  # so that Ctrl-C arrives as a key

    def typed_so_far(self) -> str:
        """Return what stands behind the prompt now."""
        if not self.has_readline:
            return ""
        import readline

        return shown(readline.get_line_buffer())

    async def read(self, beginning: str = "") -> str | None:
        """Show a prompt and return the line typed there, which may begin with something already.

        Returns None at the end of input, and a line that ends with INTERRUPTED after a Ctrl-C.
        May be left waiting.
        """
        found: list[str | UnicodeError | None] = []

        def read() -> None:
            try:
                found.append(input(PROMPT + shown(beginning)))
            except EOFError:
                found.append(None)
            except UnicodeError as problem:
                found.append(problem)
            os.close(told)

        await anyio.lowlevel.checkpoint()  # whoever leaves now leaves the terminal as it is
        beginning = self._fill_in(beginning)
        heard, told = os.pipe()
        self.is_open = True
        self._is_prepared.clear()
        # Not one of anyio's: those are waited for at the end, and this one waits for a person.
        threading.Thread(target=read, daemon=True).start()
        try:
            await anyio.wait_readable(heard)
        finally:
            os.close(heard)
        self.is_open = False
        [line] = found
        if isinstance(line, UnicodeError):
            raise line
        if line is None:
            print()  # below the prompt
            return None
        self._remember(line)
        return beginning + line

    def _fill_in(self, beginning: str) -> str:
        """Have readline begin with a text; returns what it cannot begin with."""
        if not self.has_readline:
            return beginning
        import readline

        readline.set_startup_hook((lambda: readline.insert_text(beginning)) if beginning else None)
        return ""

    def _remember(self, line: str) -> None:
        # The file has one entry a line, so a paste of several is not remembered.
        is_worth_it = line.strip() and len(line) <= _MAX_HISTORY_CHARACTERS
        if not self.has_readline or not is_worth_it or "\n" in line or line.endswith(INTERRUPTED):
            return
        import readline

        readline.add_history(line)

    def close(self) -> None:
        """Write the history, and wait until a readline that is starting has the terminal."""
        if not self.has_readline:
            return
        import readline

        try:
            _make_private(self._path)
            readline.write_history_file(self._path)
        except OSError:
            pass  # a history that cannot be kept is no reason to complain at the end
        if self.is_open:
            self._is_prepared.wait(_PREPARE_SECONDS)  # else it would take it over after us


def knows_paste() -> bool:
    """Return whether the terminal can say where a paste begins and ends."""
    return os.environ.get("TERM", "dumb") != "dumb" and sys.stdout.isatty()


def _make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    path.chmod(0o600)
