"""The turns of a chat: those that wait for an answer, and those that ended lately."""

from __future__ import annotations

from collections.abc import Callable

import anyio
from ulid import ULID

from busd.chat.turn import Prompt, Turn

_MAX_ENDED = 100  # turns whose late words are not shown


class Turns:
    """What was said and is not answered yet, in order; `on_idle` hears that nothing is left."""

    def __init__(self, on_idle: Callable[[], None]) -> None:
        self.open: dict[str, Turn] = {}
        self.prompt: Prompt | None = None  # the next line answers it
        self._ended: dict[str, None] = {}
        self._on_idle = on_idle
        self._changed = anyio.Event()

    def begin(self) -> Turn:
        turn = Turn(f"msg_{ULID()}")
        self.open[turn.message_id] = turn
        self._tell_change()
        return turn

    def latest(self) -> Turn | None:
        return next(reversed(self.open.values()), None)

    def answered_by(self, reply_to: str) -> Turn | None:
        """Return the turn that a reply ends; one that names none ends the first."""
        if reply_to:
            return self.open.get(reply_to)
        return next(iter(self.open.values()), None)  # a simple agent answers in order

    def has_ended(self, message_id: str) -> bool:
        """Return whether a turn was stopped, or has an answer already."""
        return message_id in self._ended

    def ask(self, prompt: Prompt) -> None:
        """Let the next line answer a question."""
        self.prompt = prompt
        self._tell_change()

    def answer(self) -> None:
        """Note that the question has its answer: the agent is at work again."""
        self.prompt = None
        self._tell_change()

    def end(self, turn: Turn) -> None:
        self.open.pop(turn.message_id, None)
        self.prompt = None
        self._ended[turn.message_id] = None
        if len(self._ended) > _MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        self._tell_change()

    def expect_late(self, turn: Turn) -> None:
        """Let the answer to a turn that ended be shown if it comes after all."""
        self._ended.pop(turn.message_id, None)

    def forget_before(self, turn: Turn) -> None:
        """Agents answer in order: what is open before an answer was merged into it, or dropped."""
        for message_id in list(self.open):
            if message_id == turn.message_id:
                return
            del self.open[message_id]

    @property
    def is_at_work(self) -> bool:
        """True while an agent owes an answer and asks nothing itself."""
        return bool(self.open) and self.prompt is None

    async def wait(self) -> None:
        """Wait until all are answered, or one asks something."""
        while self.is_at_work:
            await self._changed.wait()

    async def wait_for_work(self) -> None:
        """Wait until there is something to be answered."""
        while not self.is_at_work:
            await self._changed.wait()

    def _tell_change(self) -> None:
        if not self.open:
            self._on_idle()
        self._changed.set()
        self._changed = anyio.Event()
