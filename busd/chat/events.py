"""What an agent reports while it works on a turn: the data of its `agent_event` messages."""

from __future__ import annotations

from typing import Any

import msgspec

from busd.rpc.reading import Id
from busd.vocabulary.options import choose, numbered

_MAX_OPTIONS = 99


class DeltaEvent(msgspec.Struct):
    """The next piece of an answer: `turn.delta`; all events of a turn name the turn."""

    turn: str = ""
    text: str = ""


class StepEvent(msgspec.Struct):
    """Something an agent does on the way: `turn.step`."""

    id: str = ""
    name: str = ""
    tool: str | None = None
    status: str = ""

    def line(self) -> str:
        what = self.name or self.tool or self.id or "a step"
        return f"· {what}: {self.status}" if self.status else f"· {what}"


class ErrorEvent(msgspec.Struct):
    """A turn that failed: `turn.error`."""

    code: str | int = ""
    message: str = ""

    def line(self) -> str:
        return self.message or f"the agent failed ({self.code})"


class PromptEvent(msgspec.Struct):
    """A question in the middle of a turn: `turn.prompt`."""

    id: Id
    text: str = ""
    options: list[Any] | None = None  # texts, or objects with a label and a value
    placeholder: str | None = None
    required: bool = False

    def question(self) -> str:
        """Return the question with its numbered answers."""
        hint = f" ({self.placeholder})" if self.placeholder else ""
        labels = [label for label, _ in self._answers()]
        return "\n".join([f"? {self.text}{hint}", *numbered(labels)])

    def chosen(self, typed: str) -> str:
        """Return the value of the option that was typed; the agent judges anything else."""
        answers = self._answers()
        number = choose(typed, [label for label, _ in answers])
        return typed if number is None else answers[number][1]

    def _answers(self) -> list[tuple[str, str]]:
        """Return label and value of each option."""
        found: list[tuple[str, str]] = []
        for option in (self.options or [])[:_MAX_OPTIONS]:
            if isinstance(option, dict):
                value = option.get("value", option.get("id", ""))
                found.append((str(option.get("label", value)), str(value)))
            else:
                found.append((str(option), str(option)))
        return found
