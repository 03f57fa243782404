"""Splitting: a long text in parts that the other system accepts."""

from __future__ import annotations

from collections.abc import Callable

# Cut after the last of these that leaves a part at least half full; else anywhere.
_SEPARATORS = ("\n\n", "\n", " ")


def split_text(text: str, limit: int, length: Callable[[str], int] = len) -> list[str]:
    """Return a text in pieces of at most `limit`, cut between paragraphs, lines or words.

    White space at a cut is removed; a text of white space only has no pieces. `length` measures a
    text as the other system does, for instance in units of UTF-16; a character has at least 1.
    """
    if limit < 1:
        raise ValueError("a piece has at least one character")
    pieces = []
    rest = text.strip()
    while length(rest) > limit:
        most = _fitting(rest, limit, length)
        cut = _cut_of(rest, most)
        pieces.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return [each for each in (*pieces, rest) if each]


def _fitting(text: str, limit: int, length: Callable[[str], int]) -> int:
    """Return how many characters of a text fit; at least one."""
    low, high = 1, min(len(text), limit)
    while low < high:
        middle = (low + high + 1) // 2
        if length(text[:middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def _cut_of(text: str, most: int) -> int:
    for separator in _SEPARATORS:
        cut = text.rfind(separator, 0, most + len(separator))
        if most // 2 <= cut <= most and cut > 0:
            return cut
    return most
