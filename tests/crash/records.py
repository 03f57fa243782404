"""Append-only files in which senders and workers record what they did, before they go on.

A sender writes `sent TO NUMBER ID` before it sends a message for the first time, `busy ID RULE`
when the bus refused it for now, and `answer ID STATE` with the final answer. A worker writes
`processed ID ATTEMPT SENDER TO NUMBER`, `postponed ID ATTEMPT` or `declined ID ATTEMPT` before it
answers. A line is one `write`, so a process that is killed leaves whole lines only.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.daemons import PATIENCE_SECONDS


class RecordFile:
    """The file of one process; each line is announced by a byte in the pipe `events`, if given."""

    def __init__(self, path: Path, events: int | None = None) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._events = events

    def add(self, *words: object) -> None:
        line = "\t".join(str(word) for word in words) + "\n"
        assert os.write(self._file, line.encode()) == len(line)
        if self._events is not None:
            with suppress(BlockingIOError):  # full: there are enough of them to be read
                os.write(self._events, b".")


def read_records(path: Path) -> Iterator[list[str]]:
    """Return the words of each line."""
    if path.exists():
        for line in path.read_text().splitlines():
            yield line.split("\t")


class Events:
    """The reading end of the pipe on which all processes announce what they record."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self.writing, False)
        self.count = 0

    def wait(self, count: int, seconds: float = PATIENCE_SECONDS) -> bool:
        """Wait for so many events; return False if there was none for so many seconds."""
        while count > 0:
            readable, _, _ = select.select([self._reading], [], [], seconds)
            if not readable:
                return False
            seen = len(os.read(self._reading, 65_536))
            count -= seen
            self.count += seen
        return True

    def discard(self) -> None:
        """Discard the events so far."""
        while select.select([self._reading], [], [], 0)[0]:
            os.read(self._reading, 65_536)

    def close(self) -> None:
        os.close(self._reading)
        os.close(self.writing)
