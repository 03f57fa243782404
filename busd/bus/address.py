"""Addresses name peers, patterns match addresses."""

from __future__ import annotations

import re

from busd.errors import MalformedAddress, MalformedPattern

MAX_CHARACTERS = 255


def check_address(text: str) -> None:
    """Raise MalformedAddress unless `text` can name a peer."""
    if problem := _problem(text):
        raise MalformedAddress(f"malformed address: {problem}", address=text[:MAX_CHARACTERS])
    if "*" in text or "?" in text:
        raise MalformedAddress(
            f"malformed address {text!r}: * and ? belong to patterns", address=text
        )


def check_pattern(text: str) -> None:
    """Raise MalformedPattern unless `text` can match addresses."""
    if problem := _problem(text):
        raise MalformedPattern(f"malformed pattern: {problem}", pattern=text[:MAX_CHARACTERS])


def _problem(text: str) -> str:
    if not text:
        return "it is empty"
    if len(text) > MAX_CHARACTERS:
        return f"it has more than {MAX_CHARACTERS} characters"
    if not text.isprintable() or " " in text:
        return f"{text!r} has spaces or unprintable characters"
    return ""


def compile_glob(pattern: str) -> re.Pattern[str]:
    """Give the expression that matches what the glob does: `*` any run, `?` any one character."""
    first, *others = [_literally(part) for part in re.split(r"\*+", pattern)]
    if not others:
        return re.compile(first, re.S)
    *between, last = others
    # What stands between two stars is looked for once, from the left, and stays where it is found
    # (an atomic group): to try all places took 8 s for five stars.
    found = "".join(f"(?>.*?{part})" for part in between)
    return re.compile(f"{first}{found}.*{last}", re.S)


def _literally(part: str) -> str:
    return "".join("." if character == "?" else re.escape(character) for character in part)
