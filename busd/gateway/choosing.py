"""Choosing: whether the values of an answer fit the prompt that it answers."""

from __future__ import annotations

from busd.gateway.conversation import Option, Prompt
from busd.gateway.refusal import Refusal

_MAX_SHOWN = 100


def chosen_values(prompt: Prompt, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of the chosen options, or the text; raise Refusal if they do not fit.

    An option is named by its value or, where that is no other option's, by its id or label.
    """
    given = tuple(value for value in values if value.strip() or not prompt.options)
    if not any(value.strip() for value in given):
        if prompt.required and prompt.input_type != "notification":
            raise Refusal("option", "this prompt needs an answer", detail="")
        return ("",)
    if not prompt.options:
        return given
    if len(given) > 1 and prompt.input_type != "checkbox":
        raise Refusal("option", "choose one option only", detail=given[1][:_MAX_SHOWN])
    return tuple(dict.fromkeys(_value_of(each, prompt.options) for each in given))


def _value_of(given: str, options: tuple[Option, ...]) -> str:
    for name in ("value", "id", "label"):
        for option in options:
            if getattr(option, name) == given:
                return option.value
    wanted = given.strip().casefold()
    same = {
        each.value for each in options if wanted in (each.value.casefold(), each.label.casefold())
    }
    if len(same) == 1:
        return same.pop()
    known = ", ".join(option.value for option in options[:10])
    reason = f"this prompt has no such option; its options are {known}"
    raise Refusal("option", reason, detail=given[:_MAX_SHOWN])
