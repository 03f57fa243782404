"""Prompts: what an agent asks its user in the middle of a turn, and how the answer finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import msgspec
from msgspec import UNSET

from busd.errors import Refuse
from busd.rpc.reading import Id

if TYPE_CHECKING:
    from busd.agent.turn import Turn


class TurnPrompt(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The data of a `turn.prompt`."""

    turn: Id
    id: str
    input_type: str
    text: str
    required: bool = msgspec.field(default_factory=lambda: True)  # always written
    options: list[str] = []
    placeholder: str = ""
    timeout_seconds: float | None = None


class OpenPrompt:
    """A question that waits for its answer."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.answer = ""
        self._answered = anyio.Event()

    def settle(self, answer: str) -> None:
        self.answer = answer
        self._answered.set()

    async def wait(self) -> str:
        await self._answered.wait()
        return self.answer


class Prompts:
    """The questions of one agent that wait for an answer, by id."""

    def __init__(self) -> None:
        self.open: dict[str, OpenPrompt] = {}

    def find(self, words: Turn) -> OpenPrompt | None:
        """Give the prompt that a message answers, None if it is a message like any other.

        A message that names its prompt answers that one or nothing. One that names none answers
        the only prompt there is, if it comes from whom that was put to.
        """
        named = words.message.prompt_id
        if named is UNSET:
            [only] = self.open.values() if len(self.open) == 1 else [None]
            return only if only and only.turn.may_be_answered_by(words) else None
        prompt = self.open.get(str(named))
        if prompt is None:
            raise Refuse("that prompt is not open: it was answered, cancelled, or its time is over")
        if not prompt.turn.may_be_answered_by(words):
            raise Refuse("that prompt was put to somebody else")
        return prompt
