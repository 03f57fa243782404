"""Markdown as agents write it, as Telegram shows it: a text and the entities that format it.

Entities can be cut at any place, so a long text is split without breaking its format; and Telegram
counts their offsets in units of UTF-16, as it does its limit of 4096.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from busd.bridge import split_text

MAX_MESSAGE_UNITS = 4096
_MAX_FORMATTED = 64 * 1024  # characters; a longer text, or line, is left as it is
_MAX_LINE = 2_000
_MAX_DEPTH = 4

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^`]*")
_HEADING = re.compile(r"#{1,6}[ \t]+(.*?)[ \t]*#*")
_QUOTE = re.compile(r"[ \t]{0,3}>[ ]?(.*)")
_ITEM = re.compile(r"([ \t]*)[-*+][ \t]+(.*)")
_RULE = re.compile(r"[ \t]*(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})")
_TABLE = re.compile(r"[ \t]*\|.*\|[ \t]*")
_INLINE = re.compile(
    r"\\(?P<escaped>[\\`*_{}\[\]()#+.!~|>-])"
    r"|(?P<ticks>`+)(?P<code>[^`].*?|[^`])(?P=ticks)(?!`)"
    r"|!?\[(?P<label>[^\[\]]{1,500})\]\((?P<url>(?:https?|tg|mailto):[^\s()<>]*"
    r"(?:\([^\s()<>]*\)[^\s()<>]*)?)(?:[ \t]+\"[^\"]*\")?\)"
    r"|\*\*(?=\S)(?P<bold>.+?)(?<=\S)\*\*(?!\*)"
    r"|(?<!\w)__(?=\S)(?P<bold2>.+?)(?<=\S)__(?!\w)"
    r"|~~(?=\S)(?P<strike>.+?)(?<=\S)~~"
    r"|\*(?=[^\s*])(?P<italic>[^*]+?)(?<=[^\s*])\*(?!\*)"
    r"|(?<!\w)_(?=[^\s_])(?P<italic2>[^_]+?)(?<=[^\s_])_(?!\w)"
)
_STYLES = {
    "bold": "bold",
    "bold2": "bold",
    "strike": "strikethrough",
    "italic": "italic",
    "italic2": "italic",
}


class Span(NamedTuple):
    """A formatted piece of a text; offsets in characters."""

    type: str
    start: int
    end: int
    extra: str = ""  # the URL of a link, the language of a program


class Formatted(NamedTuple):
    """A text and what formats it."""

    text: str
    spans: tuple[Span, ...] = ()


def units(text: str) -> int:
    """Return the length of a text in units of UTF-16."""
    return len(text) + sum(character > "\uffff" for character in text)


def format_markdown(source: str) -> Formatted:
    """Return a text in Markdown as Telegram shows it."""
    if len(source) > _MAX_FORMATTED:
        return Formatted(source)
    writer = _Writer()
    lines = source.split("\n")
    number = 0
    while number < len(lines):
        number = _write_block(writer, lines, number)
    return writer.formatted()


def split_formatted(formatted: Formatted, limit: int = MAX_MESSAGE_UNITS) -> list[Formatted]:
    """Return a text in pieces of at most `limit` units; a span that is cut goes on in the next."""
    pieces, position = [], 0
    for text in split_text(formatted.text, limit, units):
        start = formatted.text.index(text, position)
        position = start + len(text)
        pieces.append(Formatted(text, _spans_within(formatted.spans, start, position)))
    return pieces


def _spans_within(spans: tuple[Span, ...], start: int, end: int) -> tuple[Span, ...]:
    clipped = (
        each._replace(start=max(each.start, start) - start, end=min(each.end, end) - start)
        for each in spans
        if each.start < end and each.end > start
    )
    return tuple(each for each in clipped if each.start < each.end)


class _Writer:
    """A text that grows, with its spans."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._spans: list[Span] = []
        self.length = 0

    def write(self, text: str) -> None:
        self._parts.append(text)
        self.length += len(text)

    def span(self, type: str, start: int, extra: str = "") -> None:  # noqa: A002
        if self.length > start:
            self._spans.append(Span(type, start, self.length, extra))

    def formatted(self) -> Formatted:
        text = "".join(self._parts).rstrip("\n")
        spans = _spans_within(tuple(self._spans), 0, len(text))
        return Formatted(text, tuple(sorted(spans, key=lambda each: (each.start, -each.end))))


def _write_block(writer: _Writer, lines: list[str], number: int) -> int:
    """Write the block that begins at a line; return the number of the line after it."""
    line = lines[number]
    if fence := _FENCE.fullmatch(line):
        return _write_code(writer, lines, number + 1, fence[1], fence[2])
    if _TABLE.fullmatch(line):
        return _write_while(writer, lines, number, _TABLE, "pre")
    if _QUOTE.fullmatch(line):
        return _write_while(writer, lines, number, _QUOTE, "blockquote")
    if heading := _HEADING.fullmatch(line):
        start = writer.length
        _write_inline(writer, heading[1])
        writer.span("bold", start)
    elif _RULE.fullmatch(line):
        writer.write("———")
    elif item := _ITEM.fullmatch(line):
        writer.write(f"{item[1]}• ")
        _write_inline(writer, item[2])
    else:
        _write_inline(writer, line)
    writer.write("\n")
    return number + 1


def _write_code(writer: _Writer, lines: list[str], number: int, fence: str, language: str) -> int:
    """Write a block of code; one without an end, as in a streamed text, goes to the end."""
    start = writer.length
    first = number
    while number < len(lines) and lines[number].strip() != fence:
        number += 1
    writer.write("\n".join(lines[first:number]))
    writer.span("pre", start, language)
    writer.write("\n")
    return number + 1


def _write_while(
    writer: _Writer, lines: list[str], number: int, pattern: re.Pattern[str], style: str
) -> int:
    """Write the lines that match as one block."""
    start = writer.length
    first = number
    while number < len(lines) and (found := pattern.fullmatch(lines[number])):
        writer.write("\n" if number > first else "")
        if style == "pre":
            writer.write(lines[number].strip())
        else:
            _write_inline(writer, found[1])
        number += 1
    writer.span(style, start)
    writer.write("\n")
    return number


def _write_inline(writer: _Writer, line: str, depth: int = 0) -> None:
    if len(line) > _MAX_LINE or depth > _MAX_DEPTH:
        writer.write(line)
        return
    position = 0
    for found in _INLINE.finditer(line):
        writer.write(line[position : found.start()])
        position = found.end()
        _write_found(writer, found, depth)
    writer.write(line[position:])


def _write_found(writer: _Writer, found: re.Match[str], depth: int) -> None:
    start = writer.length
    kind = found.lastgroup or ""
    if found["escaped"]:
        writer.write(found["escaped"])
    elif found["ticks"]:
        code = found["code"]
        writer.write(code.strip() if code.strip() else code)
        writer.span("code", start)
    elif found["url"]:
        _write_inline(writer, found["label"], depth + 1)
        writer.span("text_link", start, found["url"])
    else:
        _write_inline(writer, found[kind], depth + 1)
        writer.span(_STYLES[kind], start)
