"""What a program prints, cut into answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from busd.agent.pipe import PipeFrom
from busd.agent.program import MAX_OUTPUT_BYTES
from busd.agent.turn import TurnFailed

Show = Callable[[str], Awaitable[None]]
_STALE_SECONDS = 0.01
# A prompt at the end of what came so far may be a line that only begins like one.
_QUIET_SECONDS = 0.05


class OutputEnded(Exception):
    """The program has closed its stdout in the middle of an answer."""


class Output:
    """The stdout of a program that goes on running."""

    def __init__(self, stdout: PipeFrom) -> None:
        self._stdout = stdout
        self._buffer = bytearray()
        self.ended = anyio.Event()

    async def read_line(self) -> bytes:
        """Return the next line, without its end."""
        while (end := self._buffer.find(b"\n")) < 0:
            await self._read_more()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line.removesuffix(b"\r")

    async def read_until_line(self, last: bytes, show: Show | None = None) -> str:
        """Return the lines before the line `last`; `show` gets each as it comes."""
        answer = ""
        while (line := await self.read_line()) != last:
            text = line.decode(errors="replace") + "\n"
            answer += text
            if len(answer) > MAX_OUTPUT_BYTES:
                raise _too_much()
            if show is not None:
                await show(text)
        return answer

    async def read_until_prompt(self, prompt: bytes, show: Show | None = None) -> str:
        """Return what is printed before the prompt, which stands at the beginning of a line."""
        shown = 0
        while not (self._has_prompt(prompt) and await self._is_quiet()):
            await self._read_more()
            end = self._buffer.rfind(b"\n") + 1
            if show is not None and end > shown:
                await show(self._buffer[shown:end].decode(errors="replace"))
                shown = end
        answer = bytes(self._buffer[: -len(prompt)])
        self._buffer.clear()
        return answer.decode(errors="replace")

    def _has_prompt(self, prompt: bytes) -> bool:
        return self._buffer == prompt or self._buffer.endswith(b"\n" + prompt)

    async def _is_quiet(self) -> bool:
        """Return whether nothing more comes for a moment."""
        before = len(self._buffer)
        with anyio.move_on_after(_QUIET_SECONDS):
            await self._read_more()
        return len(self._buffer) == before

    async def drop_stale(self) -> int:
        """Discard what was printed before anybody asked; return how many bytes that was."""
        with anyio.move_on_after(_STALE_SECONDS):
            while len(self._buffer) <= MAX_OUTPUT_BYTES:
                await self._read_more()
        stale = len(self._buffer)
        self._buffer.clear()
        return stale

    def take_rest(self) -> str:
        rest = self._buffer.decode(errors="replace").strip("\n")
        self._buffer.clear()
        return rest

    async def _read_more(self) -> None:
        chunk = await self._stdout.read()
        if not chunk:
            self.ended.set()
            raise OutputEnded
        self._buffer += chunk
        if len(self._buffer) > MAX_OUTPUT_BYTES:
            raise _too_much()


def _too_much() -> TurnFailed:
    return TurnFailed(f"the program printed more than {MAX_OUTPUT_BYTES} bytes", code="full")
