"""The open questions of agents: shown as system messages, answered by the user's next text."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from busd.gateway import Option, Prompt
from busd_plugins.tkr.messages import Incoming

MAX_PROMPTS = 256  # remembered by one connection
_BETWEEN_CHOICES = re.compile(r"[\n,;]+")


class OpenPrompt(msgspec.Struct, eq=False):
    """A question, and which agent has asked it in which session."""

    session: str
    agent: str
    prompt: Prompt


class Prompts:
    """The open questions that a client was shown, oldest first."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], OpenPrompt] = {}

    def add(self, session: str, agent: str, prompt: Prompt) -> None:
        if prompt.input_type == "notification":  # needs no answer
            return
        self._open.pop((session, prompt.id), None)
        self._open[session, prompt.id] = OpenPrompt(session, agent, prompt)
        if len(self._open) > MAX_PROMPTS:
            del self._open[next(iter(self._open))]

    def remove(self, session: str, prompt_id: str) -> None:
        self._open.pop((session, prompt_id), None)

    def forget(self, session: str) -> None:
        """Forget those of a session that the client has left."""
        self._open = {key: each for key, each in self._open.items() if each.session != session}

    def answered_by(self, words: Incoming) -> tuple[str, tuple[str, ...]] | None:
        """Return the prompt that a text answers, and the values; None if it is a text like others.

        A text that names a prompt (`metadata.prompt_id`, `prompt_id`, or `in_reply_to` with the id
        of the system message) answers that one. Else it answers the latest question of the agent
        that it is addressed to, or of any agent if it is addressed to none.
        """
        if words.type != "text":
            return None
        session = words.session
        named = words.prompt_id or (words.metadata or {}).get("prompt_id")
        if named is not None and not isinstance(named, bool) and isinstance(named, str | int):
            found = self._open.get((session, str(named)))
            return str(named), values_of(words, found.prompt if found else None)
        found = self._open.get((session, str(words.in_reply_to or "")))
        if found is None:
            targets = words.targets
            asked = [
                each
                for each in self._open.values()
                if each.session == session and (not targets or each.agent in targets)
            ]
            if not asked:
                return None
            found = asked[-1]
        return found.prompt.id, values_of(words, found.prompt)


def values_of(words: Incoming, prompt: Prompt | None) -> tuple[str, ...]:
    """Return the values that a text chooses; a text that is no option stands for itself."""
    content: Any = words.content
    if isinstance(content, list) and all(isinstance(each, str) for each in content):
        parts = content
    elif prompt is not None and prompt.input_type == "checkbox":
        whole = _chosen(words.text, prompt.options)
        if whole is not None:
            return (whole,)
        parts = [part for each in _BETWEEN_CHOICES.split(words.text) if (part := each.strip())]
    else:
        parts = [words.text]
    options = prompt.options if prompt is not None else ()
    values = [_chosen(each, options) for each in parts]
    return tuple(
        each if value is None else value for each, value in zip(parts, values, strict=True)
    )


def plain_text(prompt: Prompt) -> str:
    """Return a question for clients that show nothing but its text."""
    hint = f" ({prompt.placeholder})" if prompt.placeholder else ""
    options = [f"{number}. {each.label}" for number, each in enumerate(prompt.options, 1)]
    return "\n".join([f"{prompt.text}{hint}", *options])


def metadata_of(prompt: Prompt) -> dict[str, Any]:
    """Return what is known of a question beside its text."""
    said: dict[str, Any] = {
        "prompt_id": prompt.id,
        "input_type": prompt.input_type,
        "options": [
            {"id": each.id, "label": each.label, "value": each.value}
            | ({"description": each.description} if each.description else {})
            for each in prompt.options
        ],
        "required": prompt.required,
    }
    if prompt.placeholder:
        said["placeholder"] = prompt.placeholder
    if prompt.seconds_left is not None:
        said["timeout_seconds"] = prompt.seconds_left
    return said


def _chosen(text: str, options: tuple[Option, ...]) -> str | None:
    """Return the value of the option that a text names by value, label, id or number."""
    said = text.strip().casefold()
    for name in ("value", "label", "id"):
        for each in options:
            if str(getattr(each, name)).strip().casefold() == said:
                return each.value
    if said.isdecimal() and len(said) < 6 and 1 <= int(said) <= len(options):
        return options[int(said) - 1].value
    return None
