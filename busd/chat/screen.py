"""What `busd chat` prints: answers on stdout, everything else dim on stderr."""

from __future__ import annotations

import os
import sys
from functools import partial

import click

from busd.chat.console import Console, is_simple_terminal
from busd.ops.output import printable


class Screen:
    """Prints whole lines and streamed text; removes control characters from all of it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._unfinished = ""  # the beginning of a line that is being streamed
        self._color = False if "NO_COLOR" in os.environ or is_simple_terminal() else None

    def stream(self, text: str) -> None:
        """Print text that continues the streamed line."""
        clean = harmless(text)
        if not clean:
            return
        if not self._console.is_interactive:
            click.echo(clean, nl=False)
            sys.stdout.flush()
            self._unfinished = "" if clean.endswith("\n") else "…"
            return
        lines, newline, rest = (self._unfinished + clean).rpartition("\n")
        if newline:
            self._print(lines)
        self._unfinished = rest
        self._console.preview(rest)

    def end_line(self) -> None:
        """End the line that is being streamed, if there is one."""
        if not self._unfinished:
            return
        line, self._unfinished = self._unfinished, ""
        if self._console.is_interactive:
            self._console.preview("")
            self._print(line)
        else:
            self._print("")

    def show(self, text: str) -> None:
        """Print an agent's text as lines of its own."""
        self.end_line()
        self._print(harmless(text).rstrip("\n"))

    def note(self, text: str) -> None:
        """Print a line about the chat itself."""
        self._print_beside(click.style(harmless_line(text), dim=True))

    def hint(self, text: str) -> None:
        """Print a line only if a person reads it."""
        if self._console.is_interactive:
            self.note(text)

    def complain(self, text: str) -> None:
        """Print an error."""
        self._print_beside(click.style(f"busd: {harmless_line(text)}", fg="red"))

    def _print_beside(self, line: str) -> None:
        if sys.stdout.isatty():  # otherwise stderr is elsewhere, and no reason to break a line
            self.end_line()
        self._console.write(partial(click.echo, line, err=True, color=self._color))

    def _print(self, text: str) -> None:
        def write() -> None:
            click.echo(text)
            sys.stdout.flush()

        self._console.write(write)


def harmless(text: str) -> str:
    """Return an agent's text with its lines and tabs, but without control characters."""
    return printable(text.replace("\r", ""))


def harmless_line(text: str) -> str:
    """Return text as one line without control characters."""
    return printable(" ".join(text.split()), keep="")
