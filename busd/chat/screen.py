"""What `busd chat` shows: the agent's words on stdout, everything else dim on stderr."""

from __future__ import annotations

import os
import sys

import click

from busd.chat.input import ChatInput
from busd.chat.keys import CLEAR_LINE, PROMPT
from busd.ops.output import printable


class Screen:
    """Writes whole lines, and those that are streamed; nothing an agent writes steers it."""

    def __init__(self, typed: ChatInput) -> None:
        self._typed = typed
        typed.on_echo = self.echo
        self._is_mid_line = False  # streamed words stand there without an end
        self._is_waiting = False  # the line says that an answer is waited for
        self._color = False if "NO_COLOR" in os.environ else None
        self._can_wait = typed.is_edited and os.environ.get("TERM", "dumb") != "dumb"

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
        self._stop_waiting()
        if self._is_mid_line:
            click.echo()
            sys.stdout.flush()
            self._is_mid_line = False
            self._step_back()

    def echo(self, text: str) -> None:
        """Show keys that were pressed during a turn."""
        if not text:
            return
        self._stop_waiting()
        click.echo(text, nl=False)
        sys.stdout.flush()
        if text.endswith("\n"):
            self._is_mid_line = False

    def echo_interrupt(self) -> None:
        """Show that Ctrl-C was pressed during a turn, as a terminal would."""
        if self._typed.is_edited and not self._typed.is_editing:
            self.echo("^C\n")

    def wait(self, seconds: float) -> None:
        """Show how long an answer is waited for, unless words or typed keys stand in the line."""
        if not self._can_wait or self._is_mid_line or self._typed.typed_so_far():
            return
        line = click.style(f"working… {int(seconds)} s, Ctrl-C stops it", dim=True)
        click.echo(CLEAR_LINE + line, nl=False, color=self._color)
        sys.stdout.flush()
        self._is_waiting = True

    def _stop_waiting(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            click.echo(CLEAR_LINE, nl=False)

    def show(self, text: str) -> None:
        """Show an agent's words as lines of their own."""
        self.end_line()
        self._step_aside()
        click.echo(harmless(text).rstrip("\n"))
        sys.stdout.flush()
        self._step_back()

    def note(self, text: str) -> None:
        """Print a line about the conversation."""
        self._say(click.style(harmless_line(text), dim=True))

    def whisper(self, text: str) -> None:
        """Print a line only if a person reads it."""
        if self._typed.is_edited:
            self.note(text)

    def complain(self, text: str) -> None:
        """Print an error."""
        self._say(click.style(f"busd: {harmless_line(text)}", fg="red"))

    def _say(self, line: str) -> None:
        if sys.stdout.isatty():  # else it is seen elsewhere, and no reason to break a line
            self.end_line()
        self._step_aside()
        click.echo(line, err=True, color=self._color)
        self._step_back()

    def _step_aside(self) -> None:
        """Make room above a line that is being typed."""
        self._stop_waiting()
        if self._typed.is_editing or self._typed.typed_so_far():
            click.echo(CLEAR_LINE, nl=False)
            sys.stdout.flush()

    def _step_back(self) -> None:
        """Show again what was typed so far."""
        line = (PROMPT if self._typed.is_editing else "") + self._typed.typed_so_far()
        if line:
            click.echo(line, nl=False)
            sys.stdout.flush()


def harmless(text: str) -> str:
    """Keep lines and tabs of what an agent writes, and nothing that steers the terminal."""
    return printable(text.replace("\r", ""))


def harmless_line(text: str) -> str:
    """Return it as one line."""
    return printable(" ".join(text.split()), keep="")
