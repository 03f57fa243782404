"""The progress line on stderr: it overwrites itself on a terminal, and is plain lines elsewhere."""

from __future__ import annotations

import sys
import time


class Progress:
    """How far the run is, and how long it will still take."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.started = time.monotonic()
        self.is_terminal = sys.stderr.isatty()

    def begin(self, what: str) -> None:
        """Show what is being measured now; only a terminal gets to see it."""
        if self.is_terminal:
            self.write(f"{what} …")

    def end(self, what: str) -> None:
        """Show what a sample gave."""
        self.done += 1
        self.write(what)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self.is_terminal:
            sys.stderr.write("\r\x1b[K")

    def write(self, what: str) -> None:
        """Write one line, over the last one if it can be."""
        line = f"[{self.done}/{self.total}, {self.seconds_left():.0f} s left] {what}"
        sys.stderr.write(f"\r\x1b[K{line[:100]}" if self.is_terminal else f"{line}\n")
        sys.stderr.flush()

    def seconds_left(self) -> float:
        """A guess from the pace so far."""
        elapsed = time.monotonic() - self.started
        return elapsed / self.done * (self.total - self.done) if self.done else 0.0
