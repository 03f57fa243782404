"""What `busd chat` shows: the agent's words on stdout, everything else dim on stderr."""

from __future__ import annotations

import os
import sys

import click

from busd.ops.chat_input import PROMPT, ChatInput
from busd.ops.cli_talk import printable

_CLEAR_LINE = "\r\x1b[K"


class Screen:
    """Writes whole lines, and those that are streamed; nothing an agent writes steers it."""

    def __init__(self, typed: ChatInput) -> None:
        self._typed = typed
        self._is_mid_line = False  # streamed words stand there without an end
        self._color = False if "NO_COLOR" in os.environ else None

    def stream(self, text: str) -> None:
        """Show words that go on where the last ones ended."""
        words = harmless(text)
        if not words:
            return
        if not self._is_mid_line:
            self._step_aside()
        click.echo(words, nl=False)
        sys.stdout.flush()
        self._is_mid_line = not words.endswith("\n")

    def end_line(self) -> None:
        """End the line that is being streamed, if there is one."""
        if self._is_mid_line:
            click.echo()
            sys.stdout.flush()
            self._is_mid_line = False
            self._step_back()

    def note_echo(self) -> None:
        """Begin a new line with the next words: the terminal has shown a ^C."""
        if self._typed.is_edited and not self._typed.is_editing:
            self._is_mid_line = True

    def show(self, text: str) -> None:
        """Show an agent's words as lines of their own."""
        self.end_line()
        self._step_aside()
        click.echo(harmless(text).rstrip("\n"))
        sys.stdout.flush()
        self._step_back()

    def note(self, text: str) -> None:
        """Say something about the conversation."""
        self._say(click.style(harmless_line(text), dim=True))

    def whisper(self, text: str) -> None:
        """Say it only to a person: no script cares."""
        if self._typed.is_edited:
            self.note(text)

    def complain(self, text: str) -> None:
        """Say that something went wrong."""
        self._say(click.style(f"busd: {harmless_line(text)}", fg="red"))

    def _say(self, line: str) -> None:
        if sys.stdout.isatty():  # else it is seen elsewhere, and no reason to break a line
            self.end_line()
        self._step_aside()
        click.echo(line, err=True, color=self._color)
        self._step_back()

    def _step_aside(self) -> None:
        """Make room above a line that is being typed."""
        if self._typed.is_editing:
            click.echo(_CLEAR_LINE, nl=False)
            sys.stdout.flush()

    def _step_back(self) -> None:
        """Show again what was typed so far."""
        if self._typed.is_editing:
            click.echo(PROMPT + printable(self._typed.typed_so_far(), keep=""), nl=False)
            sys.stdout.flush()


def harmless(text: str) -> str:
    """Keep lines and tabs of what an agent writes, and nothing that steers the terminal."""
    return printable(text.replace("\r", ""))


def harmless_line(text: str) -> str:
    """Give it as one line."""
    return printable(" ".join(text.split()), keep="")
