"""The terminal of `busd chat`: prompt_toolkit edits what is typed; answers appear above it.

The prompt is open all the time, also while an agent answers. The line that is being streamed is
drawn as part of the prompt and printed above it when it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

import anyio
from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.utils import get_cwidth

from busd.chat.console import PROMPT, check_size
from busd.wire.places import state_directory

_REFRESH_SECONDS = 0.5
_MAX_HISTORY_ENTRIES = 2_000
_MAX_ENTRY_CHARACTERS = 4_096
_ROWS_BELOW_PREVIEW = 4  # at least, for the prompt and the status line


class TerminalConsole:
    """A prompt with a history, and a status line below it."""

    is_interactive = True

    def __init__(self, status: Callable[[], str], on_interrupt: Callable[[], None]) -> None:
        self._is_closed = False
        self._preview = ""
        self._unwritten: list[Callable[[], None]] = []
        self._session: PromptSession[str] = PromptSession(
            self._prompt,
            bottom_toolbar=status,
            enable_suspend=True,
            history=_open_history(state_directory() / "chat_history"),
            key_bindings=_bind_keys(on_interrupt),
            refresh_interval=_REFRESH_SECONDS,
        )

    @contextmanager
    def open(self) -> Iterator[None]:
        # Raw also between two prompts: the terminal would echo keys that are pressed there.
        with self._session.input.raw_mode():
            try:
                yield
            finally:
                self._write_all()

    async def read(self) -> str | None:
        """Return what is typed or pasted up to Enter; raise UnicodeError if it is not UTF-8."""
        if self._is_closed:
            return None
        # Not cancelled but closed: the prompt then restores the terminal by itself.
        with anyio.CancelScope(shield=True):
            try:
                text = await self._session.prompt_async(
                    handle_sigint=False, set_exception_handler=False
                )
            except EOFError:
                return None
        check_size(len(text.encode()))  # bytes that are not UTF-8 were read as surrogates
        return None if self._is_closed else text

    def close(self) -> None:
        self._is_closed = True
        app = self._session.app
        if app.is_running and not app.is_done:
            app.exit(exception=EOFError)

    def write(self, write: Callable[[], None]) -> None:
        self._unwritten.append(write)
        if len(self._unwritten) == 1:
            self._writing = run_in_terminal(self._write_all)

    def _write_all(self) -> None:
        while self._unwritten:
            self._unwritten.pop(0)()

    def preview(self, text: str) -> None:
        self._preview = text
        self._session.app.invalidate()

    def _prompt(self) -> str:
        app = self._session.app
        if app.is_done:  # what stays on the screen is what was typed
            return PROMPT
        size = app.output.get_size()
        rows = _wrap(self._preview.expandtabs(), size.columns)
        return "\n".join([*rows[-max(1, size.rows - _ROWS_BELOW_PREVIEW) :], PROMPT])


def _bind_keys(on_interrupt: Callable[[], None]) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("c-c")
    def clear_or_interrupt(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            on_interrupt()

    return keys


def _wrap(text: str, columns: int) -> list[str]:
    """Return the rows that a line takes on the screen."""
    rows: list[str] = []
    used = columns
    for character in text:
        width = get_cwidth(character)
        if used + width > columns:
            rows.append("")
            used = 0
        rows[-1] += character
        used += width
    return rows


class _LimitedHistory(FileHistory):
    """A history without long texts, for which a full disk is no problem."""

    def store_string(self, string: str) -> None:
        if len(string) > _MAX_ENTRY_CHARACTERS:
            return
        try:
            super().store_string(string)
        except OSError:
            pass  # no reason to refuse a message


def _open_history(path: Path) -> History:
    """Return the history of earlier chats, in a file that only its owner can read."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        path.chmod(0o600)
        _shorten_history(path)
    except OSError:
        return InMemoryHistory()  # a directory that is not ours
    return _LimitedHistory(path)


def _shorten_history(path: Path) -> None:
    """Remove the oldest entries of a history that has grown too long."""
    entries = list(FileHistory(path).load_history_strings())  # the latest first
    if len(entries) <= _MAX_HISTORY_ENTRIES:
        return
    with NamedTemporaryFile(dir=path.parent, delete=False) as file:  # with mode 0600
        shortened = FileHistory(file.name)
    for text in reversed(entries[: _MAX_HISTORY_ENTRIES // 2]):
        shortened.store_string(text)
    Path(file.name).replace(path)
