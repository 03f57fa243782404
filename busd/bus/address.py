"""Addresses name peers, patterns match addresses."""

from __future__ import annotations

import re

from busd.errors import MalformedAddress, MalformedPattern

MAX_CHARACTERS = 255
# A bracket that nothing closes stands for itself; one that comes first in a class is a member.
_CLASS = re.compile(r"\[!?+\]?+[^]]*\]")
_PIECE = re.compile(rf"{_CLASS.pattern}|\*+|.", re.S)
_MEMBER = re.compile(r".-.|.", re.S)


def check_address(text: str) -> None:
    """Raise MalformedAddress unless `text` can name a peer."""
    if problem := _problem(text):
        raise MalformedAddress(f"malformed address: {problem}", address=text[:MAX_CHARACTERS])
    if "*" in text or "?" in text:
        raise MalformedAddress(
            f"malformed address {text!r}: * and ? belong to patterns", address=text
        )


def check_name(text: str) -> None:
    """Raise MalformedAddress unless `text` can be the name of a peer, which is subscribed to it."""
    check_address(text)
    if has_wildcard(text):
        raise MalformedAddress(f"malformed name {text!r}: [...] belongs to patterns", address=text)


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


def has_wildcard(pattern: str) -> bool:
    """Return whether a pattern can match other addresses than the one it spells."""
    return "*" in pattern or "?" in pattern or _CLASS.search(pattern) is not None


def split_glob(pattern: str) -> list[str]:
    """Return the pieces of a glob: runs of stars, classes with their brackets, and characters."""
    return _PIECE.findall(pattern)


def compile_glob(pattern: str) -> re.Pattern[str]:
    """Return the expression that matches what the glob does, as `fnmatch` understands globs.

    `*` is any run of characters, `?` any one, `[seq]` one of these and `[!seq]` any other one.
    """
    first, *others = _between_stars(pattern)
    if not others:
        return re.compile(first, re.S)
    *between, last = others
    # What stands between two stars is looked for once, from the left, and stays where it is found
    # (an atomic group): to try all places took 8 s for five stars.
    found = "".join(f"(?>.*?{part})" for part in between)
    return re.compile(f"{first}{found}.*{last}", re.S)


def _between_stars(pattern: str) -> list[str]:
    """Return the expressions of what stands before, between and after the stars."""
    parts = [""]
    for piece in split_glob(pattern):
        if piece[0] == "*":
            parts.append("")
        elif piece == "?":
            parts[-1] += "."
        elif len(piece) > 1:
            parts[-1] += _class_expression(piece[1:-1])
        else:
            parts[-1] += re.escape(piece)
    return parts


def _class_expression(body: str) -> str:
    """Return the expression of a class by what stands between its brackets."""
    is_negated = body.startswith("!")
    members = "".join(map(_member_expression, _MEMBER.findall(body[is_negated:])))
    if not members:  # only ranges that run backwards: no character is in them
        return "." if is_negated else "(?!)"
    return f"[{'^' if is_negated else ''}{members}]"


def _member_expression(member: str) -> str:
    first, last = member[0], member[-1]
    if len(member) == 3 and first > last:
        return ""
    # By number: whatever the characters mean inside of an expression.
    ends = [f"\\U{ord(end):08x}" for end in ((first, last) if len(member) == 3 else member)]
    return "-".join(ends)
