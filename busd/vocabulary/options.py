"""Find the option of a question that an answer selects."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MAX_DIGITS = 4
_MAX_PARTS = 1_000  # of an answer that selects several options
_BETWEEN_LINES = re.compile(r"\n")
_BETWEEN_PARTS = re.compile(r"[\n,;，、；]")


def choose(answer: str, options: Sequence[str]) -> int | None:
    """Return the index of the option that an answer selects; None if it selects none or several.

    The option's text has precedence, regardless of case. Otherwise the answer is the number of an
    option, from 1, or a prefix of exactly one; if these select different options, it is ambiguous.
    """
    wanted = answer.strip()
    if not wanted:
        return None
    folded = wanted.casefold()
    texts = [option.strip().casefold() for option in options]
    exact = [n for n, option in enumerate(options) if option.strip() == wanted]
    same = exact or [n for n, text in enumerate(texts) if text == folded]
    if same:
        return same[0] if len(same) == 1 else None
    meant = {n for n, text in enumerate(texts) if text.startswith(folded)}
    if wanted.isdecimal() and len(wanted) <= _MAX_DIGITS and 1 <= int(wanted) <= len(options):
        meant.add(int(wanted) - 1)
    return meant.pop() if len(meant) == 1 else None


def choose_several(answer: str, options: Sequence[str]) -> list[int]:
    """Return the indexes of the options that an answer selects; none if a part of it is unclear.

    The answer selects one option, as for `choose`, or has a part for each: on lines of their own,
    or with commas between.
    """
    if (only := choose(answer, options)) is not None:
        return [only]
    for between in (_BETWEEN_LINES, _BETWEEN_PARTS):
        parts = [part for part in between.split(answer, _MAX_PARTS) if part.strip()]
        chosen = [choose(part, options) for part in parts]
        if None not in chosen:
            return sorted({number for number in chosen if number is not None})
    return []


def numbered(labels: Sequence[str]) -> list[str]:
    """Return a line for each option, with the number that chooses it."""
    return [f"  {number}. {label}" for number, label in enumerate(labels, 1)]
