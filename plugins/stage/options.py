"""What a typed answer to a question means."""

from __future__ import annotations

import re

from busd.gateway import Option, Prompt

_MAX_DIGITS = 4


def values_of(prompt: Prompt, text: str) -> tuple[str, ...] | None:
    """Return the values that an answer means; None if it is none of the options."""
    if not prompt.options:
        return (text,) if text.strip() or not prompt.required else None
    if not text.strip():
        return None if prompt.required else ()
    if only := _find(prompt.options, text):
        return (only.value,)
    if prompt.input_type != "checkbox":
        return None
    found = [_find(prompt.options, part) for part in re.split(r"[,;\n]", text) if part.strip()]
    values = [option.value for option in found if option is not None]
    return tuple(dict.fromkeys(values)) if values and len(values) == len(found) else None


def _find(options: tuple[Option, ...], text: str) -> Option | None:
    """Return the option that a text names: by value, id, label, number, or by its beginning."""
    wanted = text.strip()
    folded = wanted.casefold()
    names = [(each.value, each.id, each.label) for each in options]
    exact = [each for each, said in zip(options, names, strict=True) if wanted in said]
    folds = [tuple(name.casefold() for name in said) for said in names]
    same = exact or [each for each, said in zip(options, folds, strict=True) if folded in said]
    if same:
        return same[0] if len(same) == 1 else None
    if wanted.isdecimal() and len(wanted) <= _MAX_DIGITS:
        return options[int(wanted) - 1] if 1 <= int(wanted) <= len(options) else None
    begun = [each for each in options if each.label.casefold().startswith(folded)]
    return begun[0] if len(begun) == 1 else None
