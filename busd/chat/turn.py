"""Turns: a message of ours until it is answered, and what an agent tells of it meanwhile."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from busd.rpc.reading import Id
from busd.vocabulary.bub import AgentEvent
from busd.vocabulary.options import choose, numbered
from busd.vocabulary.payload import write_message

_MAX_OPTIONS = 99
_MAX_STREAMED = 1 << 20


class Turn(msgspec.Struct):
    """One message of ours."""

    message_id: str
    streamed: str = ""  # what of the answer was shown already
    is_acked: bool = False

    def note_streamed(self, text: str) -> None:
        """Remember what was shown of the answer, within reason."""
        if len(self.streamed) < _MAX_STREAMED:
            self.streamed += text

    def rest_of(self, text: str) -> str | None:
        """Return what is still to be shown of the answer; None if something else was streamed."""
        shown = self.streamed.rstrip()
        if not shown:
            return None
        if not text.startswith(shown):
            # An agent that was killed in the middle has begun anew: the whole stands there last.
            whole = text.strip()
            is_shown = shown.strip() == whole or shown.endswith(f"\n{whole}")
            return "" if is_shown else None
        # Spaces and line ends behind the last word may have been shown, too.
        blank = self.streamed[len(shown) :]
        rest = text[len(shown) :]
        return rest.removeprefix(blank) if rest.startswith(blank) else rest.lstrip()


class Words(msgspec.Struct):
    """What all events of a turn share, and the text of `turn.delta`."""

    turn: str = ""
    text: str = ""


class Step(msgspec.Struct):
    """Something an agent does on the way: `turn.step`."""

    id: str = ""
    name: str = ""
    tool: str | None = None
    status: str = ""

    def line(self) -> str:
        what = self.name or self.tool or self.id or "a step"
        return f"· {what}: {self.status}" if self.status else f"· {what}"


class Failed(msgspec.Struct):
    """A turn that came to nothing: `turn.error`."""

    code: str | int = ""
    message: str = ""

    def line(self) -> str:
        return self.message or f"the agent failed ({self.code})"


class Prompt(msgspec.Struct):
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
        """Return the value of the option that was typed; what is none is left to the agent."""
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


def cancel_of(turn: Turn, sender: str) -> Raw:
    """Return the payload that asks an agent to stop a turn."""
    data = Raw(msgspec.json.encode({"turn": turn.message_id}))
    return write_message(AgentEvent("turn.cancel", data), sender=sender)
