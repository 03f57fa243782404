"""Prompts: how they look to an AgentIQ client, and what its answers mean."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from busd.gateway import Option, Prompt, PromptEnd
from busd_plugins.agentiq.content import Words
from busd_plugins.agentiq.faults import Invalid
from busd_plugins.agentiq.frames import Frame

_CHOICES = ("binary_choice", "radio", "checkbox", "dropdown")
_MAX_CLOSED = 64
_MAX_VALUES = 256  # of one answer: each is compared with all options
_TOO_LATE = "This question can no longer be answered."
_ENDS = {
    PromptEnd.ANSWERED: "was already answered",
    PromptEnd.TIMED_OUT: "was not answered in time",
    PromptEnd.TURN_ENDED: "is no longer open: its turn has ended",
}


def content_of(prompt: Prompt, *, is_simple: bool = False) -> dict[str, Any]:
    """Return the content of a `system_interaction_message`.

    With `is_simple` it has only types that the toolkit's own web UI has an input for.
    """
    kind = _kind_of(prompt)
    content: dict[str, Any] = {"input_type": kind, "text": prompt.text}
    if is_simple and kind == "dropdown":
        content["input_type"] = kind = "radio"
    if is_simple and kind == "checkbox":
        content["input_type"] = kind = "text"
        labels = " / ".join(option.label or option.value for option in prompt.options)
        content["text"] = f"{prompt.text}\n({labels})"
    if kind == "text":
        content["placeholder"] = prompt.placeholder
    if kind in _CHOICES:
        content["options"] = [_option(kind, option) for option in prompt.options]
    if kind != "notification":
        content["required"] = prompt.required
    if prompt.seconds_left is not None:
        # A client ends the prompt itself; the toolkit takes whole seconds above 0.
        content["timeout"] = max(1, math.ceil(prompt.seconds_left))
        content["error"] = _TOO_LATE
    return content


def _kind_of(prompt: Prompt) -> str:
    """Return a type that fits the options: clients reject others."""
    if prompt.input_type in _CHOICES and not prompt.options:
        return "text"
    if prompt.input_type == "binary_choice" and len(prompt.options) != 2:
        return "radio"
    return prompt.input_type


def _option(kind: str, option: Option) -> dict[str, str]:
    shown = {"id": option.id, "label": option.label or option.value, "value": option.value}
    if kind != "binary_choice" or option.description:
        shown["description"] = option.description
    return shown


class Prompts:
    """The prompts of one conversation that this client was shown."""

    def __init__(self) -> None:
        self._open: dict[str, Prompt] = {}
        self._frames: dict[str, Frame] = {}  # as which they were shown last
        self._names: dict[str, str] = {}  # a prompt by any id that an answer may have as parent
        self._ends: dict[str, str] = {}  # how those have ended that are not open any more

    def show(self, prompt: Prompt, frame: Frame) -> None:
        """Remember a prompt that waits for an answer, and the ids that stand for it."""
        if prompt.input_type == "notification":
            return
        if shown := self._frames.get(prompt.id):
            self._names.pop(shown["id"], None)
        self._open[prompt.id], self._frames[prompt.id] = prompt, frame
        for name in (prompt.id, prompt.turn, frame["parent_id"], frame["id"]):
            self._names[name] = prompt.id  # the latest prompt of a turn is the one in sight
            self._ends.pop(name, None)

    def close(self, prompt_id: str, how: PromptEnd) -> None:
        """Forget a prompt, but not why it is closed."""
        self._open.pop(prompt_id, None)
        self._frames.pop(prompt_id, None)
        for name in [name for name, named in self._names.items() if named == prompt_id]:
            del self._names[name]
            self._ends[name] = _ENDS[how]
        for prompt in self._open.values():  # another one of the same turn may still be open
            for name in (prompt.turn, self._frames[prompt.id]["parent_id"]):
                self._names[name] = prompt.id
                self._ends.pop(name, None)
        while len(self._ends) > _MAX_CLOSED:
            del self._ends[next(iter(self._ends))]

    def frame_of(self, prompt: Prompt) -> Frame:
        """Return the frame as which an open prompt was shown last."""
        return self._frames[prompt.id]

    def knows(self, parent: str) -> bool:
        return parent in self._names or parent in self._ends

    def find(self, parent: str) -> Prompt:
        """Return the open prompt that an answer is for; raise Invalid."""
        if parent in self._names:
            return self._open[self._names[parent]]
        if not parent and len(self._open) == 1:
            return next(iter(self._open.values()))
        if parent in self._ends:
            reason = f"the prompt {self._ends[parent]}"
        elif parent:
            reason = "there is no open prompt with this parent_id in the conversation"
        else:
            reason = "missing; copy it from the system_interaction_message"
        raise Invalid("invalid_message", "parent_id", reason)


def values_of(prompt: Prompt, words: Words) -> tuple[str, ...]:
    """Return the values of the options that an answer names; raise Invalid if it is empty.

    An option may also be named by its id or label. The host checks whether the prompt has it.
    """
    said = [text for text in words.texts if text.strip()]
    if not said:
        if prompt.required:
            raise Invalid("invalid_user_message_content", words.where, "empty; answer the prompt")
        return () if prompt.options else ("",)
    if not prompt.options:
        return ("\n".join(said),)
    if prompt.input_type == "checkbox" and len(said) == 1:
        said = _split(prompt, said[0])
    if len(said) > _MAX_VALUES:
        reason = f"more than {_MAX_VALUES} values"
        raise Invalid("invalid_user_message_content", words.where, reason)
    return tuple(dict.fromkeys(_value(prompt, each) for each in said))


def _split(prompt: Prompt, text: str) -> list[str]:
    """Return the parts of an answer with several options: JSON, lines, or commas between."""
    if _find(prompt, text) is not None:
        return [text]
    try:
        return msgspec.json.decode(text, type=list[str]) or [text]
    except (msgspec.MsgspecError, UnicodeEncodeError):
        pass
    parts = text.splitlines() if "\n" in text.strip() else text.split(",")
    return [part.strip() for part in parts if part.strip()] or [text]


def _value(prompt: Prompt, text: str) -> str:
    option = _find(prompt, text)
    return text if option is None else option.value


def _find(prompt: Prompt, text: str) -> Option | None:
    wanted = text.strip()
    for name in ("value", "id", "label"):  # in this order, should they contradict each other
        for option in prompt.options:
            if getattr(option, name) in (text, wanted):
                return option
    folded = wanted.casefold()
    found = [each for each in prompt.options if each.label.casefold() == folded]
    return found[0] if len(found) == 1 else None
