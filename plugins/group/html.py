"""HTML of clients, made harmless.

nh3 decides what may stay. Before it sees a text, everything is taken out that it would not keep,
and what makes it slow: 200,000 nested elements take it minutes, 100,000 attributes of one 10 s.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape, unescape

MAX_CHARACTERS = 256 * 1024
_MAX_DEPTH = 1_000
_MAX_ATTRIBUTES = 32
_SCHEMES = {"http", "https", "mailto", "tel"}
_ADDRESS = re.compile(r"https?://|mailto:|tel:", re.IGNORECASE)  # no relative ones
_VOID = {"area", "br", "col", "hr", "img", "wbr"}
# In the spelling of nh3: values stand in double quotes, and have none in themselves.
_PICTURE = re.compile(r'(?P<tag><img(?: [\w:-]+="[^"]*+")*?) src="(?P<url>[^"]*+)"')
# Strict on purpose: what this matches, every parser takes for the same tag. Linear: the possessive
# groups never give back, and what fails ends at the next `<`.
_PART = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<(?P<hidden>script|style|template|iframe|noscript|textarea|title|svg|math)\b"
    r".*?(?:</(?P=hidden)\s*>|\Z)"
    r"|<(?P<close>/?)(?P<name>[a-zA-Z][a-zA-Z0-9]*+)"
    r"(?:\s++[a-zA-Z_:][\w:.-]*+(?:\s*+=\s*+(?:\"[^\"<>]*+\"|'[^'<>]*+'|[^\s\"'<>=`]++))?+)"
    rf"{{0,{_MAX_ATTRIBUTES}}}+\s*+/?>"
    r"|<",
    re.DOTALL | re.IGNORECASE,
)


def clean_html(html: str) -> str:
    """Return the harmless part of HTML."""
    import nh3

    def checked(tag: str, attribute: str, value: str) -> str | None:
        is_address = attribute in ("src", "href", "cite")
        return None if is_address and not _ADDRESS.match(value) else value

    return nh3.clean(
        _without_unknown(html, nh3.ALLOWED_TAGS), url_schemes=_SCHEMES, attribute_filter=checked
    )


def with_signed_pictures(cleaned: str, sign: Callable[[str], str]) -> str:
    """Return HTML that `clean_html` has returned, with signed addresses of its pictures.

    Each client has addresses of its own; to clean the HTML again for each would take far longer.
    """

    def signed(found: re.Match[str]) -> str:
        link = escape(sign(unescape(found["url"])))
        return f'{found["tag"]} src="{link}"' if link else found["tag"]

    return _PICTURE.sub(signed, cleaned)


def count_pictures(cleaned: str) -> int:
    """Return how many pictures with addresses HTML has that `clean_html` has returned."""
    return len(_PICTURE.findall(cleaned))


def _without_unknown(html: str, allowed: set[str]) -> str:
    """Return HTML in which every `<` begins an allowed tag, none of them nested too deeply."""
    is_open: list[str] = []

    def part(found: re.Match[str]) -> str:
        if found["name"] is None:
            return "&lt;" if found[0] == "<" else ""  # a comment, or what is not shown
        name = found["name"].lower()
        if name not in allowed:
            return ""
        if found["close"]:
            # A tag that closes another one than the last does not count: parsers may ignore it.
            if is_open and is_open[-1] == name:
                is_open.pop()
        elif name not in _VOID:
            if len(is_open) >= _MAX_DEPTH:
                return ""
            is_open.append(name)
        return found[0]

    return _PART.sub(part, html)
