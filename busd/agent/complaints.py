"""What a program writes to stderr: all of it goes to our own, the last of it to the user."""

from __future__ import annotations

import sys
from collections import deque

from busd.agent.pipe import PipeFrom

_SHOWN_LINES = 5
_SHOWN_CHARACTERS = 1_000


class Complaints:
    """The last lines of a program's stderr."""

    def __init__(self, stderr: PipeFrom) -> None:
        self._stderr = stderr
        self._lines: deque[str] = deque(maxlen=_SHOWN_LINES)
        self._rest = b""

    async def read(self) -> None:
        """Read until there is nothing more to come."""
        while chunk := await self._stderr.read():
            sys.stderr.buffer.write(chunk)
            sys.stderr.flush()
            self._note(chunk)

    def _note(self, chunk: bytes) -> None:
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[-_SHOWN_CHARACTERS:]
        self._lines.extend(_shown(line) for line in lines if line.strip())

    def last_lines(self) -> str:
        lines = [*self._lines, _shown(self._rest)]
        text = "\n".join([line for line in lines if line.strip()][-_SHOWN_LINES:])
        return text[-_SHOWN_CHARACTERS:]


def _shown(line: bytes) -> str:
    return line[-_SHOWN_CHARACTERS:].decode(errors="replace").rstrip()
