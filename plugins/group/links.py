"""Links in messages: addresses of files and HTML, wherever they stand in a message."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from busd_plugins.group.errors import Invalid
from busd_plugins.group.html import (
    MAX_CHARACTERS,
    clean_html,
    count_pictures,
    with_signed_pictures,
)
from busd_plugins.group.messages import Json

MAX_LINKS = 100  # of one message: each client gets links of its own
_ADDRESS = re.compile(r"(?i:(?:.*_)?urls?)|.*[a-z](?:Url|URL)s?", re.DOTALL)
_MAX_NAME = 256  # of a member that is an address
# Pictures and sounds within the address itself; no SVG, which can hold scripts.
_EMBEDDED = tuple(
    f"data:{kind}" for kind in ("image/png", "image/jpeg", "image/gif", "image/webp", "audio/")
)


def clean_message(frame: Json) -> None:
    """Make all HTML of a message harmless, in place; raise Invalid for too much of it."""
    characters, links = 0, _count_addresses(frame)
    for holder, name in _html_members(frame):
        field = f"payload.{name}" if holder is frame.get("payload") else name
        characters += len(holder[name])
        if characters > MAX_CHARACTERS:
            raise Invalid(field, f"超过{MAX_CHARACTERS}个字符")
        holder[name] = clean_html(holder[name])
        links += count_pictures(holder[name])
    if links > MAX_LINKS:
        raise Invalid("payload", f"超过{MAX_LINKS}个链接")


def _html_members(value: Any) -> Iterator[tuple[Json, str]]:
    """Yield each object with HTML, and the name of the member that is HTML."""
    if isinstance(value, dict):
        yield from ((value, name) for name in ("html_content", "text") if _is_html(value, name))
    for member in value.values() if isinstance(value, dict) else value:
        if isinstance(member, dict | list):
            yield from _html_members(member)


def _is_html(holder: Json, name: str) -> bool:
    is_meant = name == "html_content" or (name == "text" and holder.get("format") == "html")
    return is_meant and isinstance(holder.get(name), str)


def _count_addresses(value: Any, name: str = "") -> int:
    if isinstance(value, dict):
        return sum(_count_addresses(member, key) for key, member in value.items())
    if isinstance(value, list):
        return sum(_count_addresses(item, name) for item in value)
    return isinstance(value, str) and _is_address(name)


def _is_address(name: str) -> bool:
    return len(name) <= _MAX_NAME and _ADDRESS.fullmatch(name) is not None


def with_links(
    value: Any, sign: Callable[[str], str], name: str = "", *, is_clean: bool = False
) -> Any:
    """Return a copy of a JSON value in which each address of a file is a link that expires.

    Addresses are the members `url`, `urls`, `…_url` and `…_urls`, and the pictures of HTML.
    `is_clean`: the value was in a message that `clean_message` has seen.
    """
    if isinstance(value, dict):
        return {
            key: _shown_html(member, sign, is_clean=is_clean)
            if _is_html(value, key)
            else with_links(member, sign, key, is_clean=is_clean)
            for key, member in value.items()
        }
    if isinstance(value, list):
        return [with_links(item, sign, name, is_clean=is_clean) for item in value]
    if isinstance(value, str) and value and _is_address(name):
        return value if value.startswith(_EMBEDDED) else sign(value)
    return value


def _shown_html(html: str, sign: Callable[[str], str], *, is_clean: bool) -> str:
    if not is_clean:
        html = clean_html(html[:MAX_CHARACTERS])
    return with_signed_pictures(html, sign)
