"""Splitting: a reply as messages of at most 2,000 characters, with whole code blocks."""

from __future__ import annotations

import re

import msgspec

from busd.bridge import Attachment, Part, Reply, split_text

MAX_CHARACTERS = 2_000  # Discord counts code points, as Python does
MAX_FILES = 10
_FENCE = re.compile(r"^ {0,3}(`{3,10})(?!`)[ \t]*([\w+#.-]{0,30})[^\n`]*$", re.MULTILINE)


class _Fence(msgspec.Struct, frozen=True):
    """The beginning of a code block."""

    start: int
    marks: str
    language: str


class Extra(msgspec.Struct, frozen=True):
    """What a part has beside its text."""

    files: tuple[Attachment, ...] = ()


def split_reply(reply: Reply) -> list[Part]:
    """Return the parts of a reply: its text, with links, and then its files."""
    links = [each.url for each in reply.attachments if each.url and not each.data]
    files = [each for each in reply.attachments if each.data]
    texts = split_markdown("\n".join((reply.text, *links)))
    parts = [Part(text) for text in texts]
    for at in range(0, len(files), MAX_FILES):
        extra = Extra(files=tuple(files[at : at + MAX_FILES]))
        parts += [Part("", extra=extra)]
    return parts


def split_markdown(text: str, limit: int = MAX_CHARACTERS) -> list[str]:
    """Return a text in pieces; a code block that is cut is closed, and opened again."""
    pieces: list[str] = []
    rest = text.strip()
    while len(rest) > limit:
        piece, rest = _cut(rest, limit)
        pieces.append(piece)
    return [each for each in (*pieces, rest) if each.strip()]


def _cut(text: str, limit: int) -> tuple[str, str]:
    """Cut the first piece off a text that is longer than the limit."""
    first = split_text(text[: limit + 1], limit)[0]
    fence = _open_fence(first)
    if fence is None:
        return first, text[len(first) :].lstrip()
    if fence.start >= limit // 2 and text[: fence.start].strip():
        # The block begins in the second half: it is moved to the next piece as a whole.
        return text[: fence.start].rstrip(), text[fence.start :].lstrip()
    most = limit - len(fence.marks) - 1
    body_at = text.find("\n", fence.start) + 1
    cut = text.rfind("\n", body_at + 1, most + 1)
    if body_at == 0 or cut <= max(body_at, most // 2):
        cut = most
    piece = f"{text[:cut]}\n{fence.marks}"
    # Only the line break is removed: white space means something in code.
    rest = text[cut:].removeprefix("\n")
    if rest.startswith(fence.marks):  # the block ends just here
        return piece, rest.lstrip("`").lstrip()
    return piece, f"{fence.marks}{fence.language}\n{rest}"


def _open_fence(text: str) -> _Fence | None:
    """Return the code block that a text ends in."""
    opened: _Fence | None = None
    for found in _FENCE.finditer(text):
        if opened is None:
            opened = _Fence(found.start(), found[1], found[2])
        elif not found[2] and found[1].startswith(opened.marks):
            opened = None
    return opened
