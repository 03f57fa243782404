"""The turns of a chat: those that wait for an answer, and those that ended lately."""

from __future__ import annotations

import anyio
import msgspec
from ulid import ULID

from busd.chat.events import PromptEvent

_MAX_ENDED = 100  # turns whose late answers are not shown
_MAX_STREAMED = 1 << 20


class OpenTurn(msgspec.Struct):
    """One message of ours that waits for its answer."""

    message_id: str = msgspec.field(default_factory=lambda: f"msg_{ULID()}")
    streamed: str = ""  # the part of the answer that was shown
    is_acked: bool = False
    started_at: float = msgspec.field(default_factory=anyio.current_time)

    def note_streamed(self, text: str) -> None:
        """Remember a part of the answer that was shown, up to a limit."""
        if len(self.streamed) < _MAX_STREAMED:
            self.streamed += text

    def rest_of(self, text: str) -> str | None:
        """Return the part of the answer still to be shown; None if another text was streamed."""
        shown = self.streamed.rstrip()
        if not shown:
            return None
        if not text.startswith(shown):
            # An agent that was killed in the middle began again: the whole answer is shown last.
            whole = text.strip()
            is_shown = shown.strip() == whole or shown.endswith(f"\n{whole}")
            return "" if is_shown else None
        # White space behind the last word may have been shown, too.
        blank = self.streamed[len(shown) :]
        rest = text[len(shown) :]
        return rest.removeprefix(blank) if rest.startswith(blank) else rest.lstrip()


class OpenTurns:
    """The turns without an answer, in order."""

    def __init__(self) -> None:
        self.open: dict[str, OpenTurn] = {}
        self.prompt: PromptEvent | None = None  # the next line answers it
        self._ended: dict[str, None] = {}
        self._changed = anyio.Event()

    def begin(self) -> OpenTurn:
        turn = OpenTurn()
        self.open[turn.message_id] = turn
        return turn

    def first(self) -> OpenTurn | None:
        return next(iter(self.open.values()), None)

    def latest(self) -> OpenTurn | None:
        return next(reversed(self.open.values()), None)

    def answered_by(self, reply_to: str) -> OpenTurn | None:
        """Return the turn that a reply ends; a reply that names none ends the first."""
        return self.open.get(reply_to) if reply_to else self.first()

    def has_ended(self, message_id: str) -> bool:
        """Return whether a turn was stopped or answered."""
        return message_id in self._ended

    def ask(self, prompt: PromptEvent) -> None:
        """Treat the next line as the answer to a question."""
        self.prompt = prompt
        self._notify()

    def end(self, turn: OpenTurn) -> None:
        self.open.pop(turn.message_id, None)
        self.prompt = None
        self._ended[turn.message_id] = None
        if len(self._ended) > _MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        self._notify()

    def expect_late(self, turn: OpenTurn) -> None:
        """Allow the answer to an ended turn to be shown if it comes after all."""
        self._ended.pop(turn.message_id, None)

    def forget_before(self, turn: OpenTurn) -> None:
        """Forget turns before this one: agents answer in order, so they were merged or dropped."""
        for message_id in list(self.open):
            if message_id == turn.message_id:
                return
            del self.open[message_id]

    async def wait(self) -> None:
        """Wait until all turns are answered, or one asks something."""
        while self.open and self.prompt is None:
            await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
