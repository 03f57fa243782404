"""Answers to the questions of agents, which a client sees as polls."""

from __future__ import annotations

from collections.abc import Iterable

from busd.gateway import Option, Prompt
from busd_plugins.group.errors import Invalid
from busd_plugins.group.messages import Message
from busd_plugins.group.room import Room
from busd_plugins.group.tracked import chosen_options, find_option, labels


def chosen(prompt: Prompt, choices: Iterable[str]) -> list[Option]:
    """Return the options that a vote names; raise Invalid."""
    return chosen_options(prompt.options, choices, multiple=prompt.input_type == "checkbox")


def answer_in_words(message: Message, room: Room) -> tuple[Prompt, tuple[str, ...]] | None:
    """Return the question that a chat message answers, and the values; None if it answers none.

    A reply to a question answers it. So do the next words of the user who was asked, if the
    question is one for free text or the words are one of its options: existing clients cannot
    reply to a message. Raise Invalid for a reply that is no option.
    """
    reply_to = message.payload.get("reply_to", "")
    text = str(message.payload["text"])
    if found := room.questions.get(reply_to):
        prompt = found[0]
        values = _values_in(prompt, text)
        if values is None:
            raise Invalid("payload.text", f"不是该投票的选项；可选：{labels(prompt.options)}")
        return prompt, values
    if reply_to or message.payload.get("mentions"):
        return None
    for prompt, turn in reversed(room.questions.values()):
        if turn is not None and turn.author.id == message.sender.id:
            values = _values_in(prompt, text)
            if values is not None:
                return prompt, values
    return None


def _values_in(prompt: Prompt, text: str) -> tuple[str, ...] | None:
    """Return the values that a text stands for; None if it names no option."""
    if prompt.input_type == "notification":
        return None
    if not prompt.options:
        return (text,)
    if whole := _find(prompt, text):
        return (whole.value,)
    if prompt.input_type != "checkbox":
        return None
    for comma in ("、", "，", ",", "\n"):
        text = text.replace(comma, "\0")
    options = [_find(prompt, part) for part in text.split("\0") if part.strip()]
    values = tuple(dict.fromkeys(option.value for option in options if option))
    return values if values and None not in options else None


def _find(prompt: Prompt, said: str) -> Option | None:
    """Return an option by its id, value, label or number."""
    if option := find_option(prompt.options, said):
        return option
    said = said.strip()
    if (
        said.isascii()
        and said.isdigit()
        and len(said) <= 4
        and 0 < int(said) <= len(prompt.options)
    ):
        return prompt.options[int(said) - 1]
    return None
