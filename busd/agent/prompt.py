"""Prompts: what an agent asks its user in the middle of a turn, and how the answer finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import msgspec
from msgspec import UNSET

from busd.errors import Refuse
from busd.rpc.reading import Id
from busd.vocabulary.options import choose, choose_several, numbered

if TYPE_CHECKING:
    from busd.agent.turn import Turn

_MAX_SHOWN = 40  # characters of an unclear answer that are repeated


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

    def plain_text(self) -> str:
        """Return the question for peers that know only replies."""
        hint = f" ({self.placeholder})" if self.placeholder else ""
        return "\n".join([f"{self.text}{hint}", *numbered(self.options)])


class OpenPrompt:
    """A question that waits for its answer."""

    def __init__(self, turn: Turn, prompt: TurnPrompt) -> None:
        self.turn = turn
        self.times = 0  # that it was put to the user
        self._prompt = prompt
        self._answer: str | None = None
        self._unclear = ""  # what was answered instead of an option
        self._answered = anyio.Event()

    @property
    def is_answered(self) -> bool:
        return self._answer is not None

    def next_prompt(self) -> TurnPrompt:
        """Return the question as it is put this time."""
        self.times += 1
        if self.times == 1:
            return self._prompt
        again = f"“{self._unclear}” is not one of the options. {self._prompt.text}"
        return msgspec.structs.replace(self._prompt, text=again)

    def settle(self, answer: str) -> bool:
        """Accept an answer; returns False if it is none of the options, and is asked for again."""
        self._answer = self._meant_by(answer)
        if self._answer is None:
            self._unclear = _shown(answer)
        self._answered.set()
        return self._answer is not None

    def _meant_by(self, answer: str) -> str | None:
        options = self._prompt.options
        if not options:
            return answer
        if not (self._prompt.required or answer.strip()):
            return ""
        if self._prompt.input_type == "checkbox":
            chosen = choose_several(answer, options)
            return "\n".join(options[number] for number in chosen) or None
        number = choose(answer, options)
        return None if number is None else options[number]

    async def wait(self) -> str | None:
        """Wait for an answer; returns None if it is not clear."""
        await self._answered.wait()
        if self._answer is None:
            self._answered = anyio.Event()
        return self._answer


def _shown(answer: str) -> str:
    """Return an answer as one short line."""
    line = " ".join(answer.split())
    return line if len(line) <= _MAX_SHOWN else f"{line[:_MAX_SHOWN]}…"


class Prompts:
    """The questions of one agent that wait for an answer, by id."""

    def __init__(self) -> None:
        self.open: dict[str, OpenPrompt] = {}

    def find(self, words: Turn) -> OpenPrompt | None:
        """Return the prompt that a message answers, None if it is a message like any other.

        A message that names its prompt answers that one or nothing. One that names none answers
        the only prompt there is, if it comes from whom that was put to.
        """
        named = words.message.prompt_id
        if named is UNSET:
            unanswered = [each for each in self.open.values() if not each.is_answered]
            [only] = unanswered if len(unanswered) == 1 else [None]
            return only if only and only.turn.may_be_answered_by(words) else None
        prompt = self.open.get(str(named))
        if prompt is None or prompt.is_answered:
            raise Refuse("that prompt is not open: it was answered, cancelled, or its time is over")
        if not prompt.turn.may_be_answered_by(words):
            raise Refuse("that prompt was put to somebody else")
        return prompt
