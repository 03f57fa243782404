"""What a frame says, and what else is shown as text."""

from __future__ import annotations

import re

import msgspec
from msgspec import UNSET, Raw, UnsetType

from busd.gateway import Entry, parse_lenient

_SECRETS = ("security", "token", "api_key", "authorization", "password")


def text_in(frame: str) -> tuple[str, Raw | UnsetType]:
    """Return what a frame says, and the frame itself if it is an object that holds a text."""
    if not frame.lstrip().startswith("{"):
        return frame, UNSET
    try:
        found = parse_lenient(frame)
    except ValueError:
        return frame, UNSET
    for name in ("text", "content", "message"):
        if isinstance(found, dict) and isinstance(found.get(name), str) and found[name]:
            kept = {key: value for key, value in found.items() if key.casefold() not in _SECRETS}
            return found[name], Raw(msgspec.json.encode(kept))
    return frame, UNSET


def text_of(entry: Entry) -> str:
    """Return an entry as one text: Markdown, with a line for each attachment."""
    lines = []
    for each in entry.attachments:
        label = re.sub(r"[\[\]\s]+", " ", each.name or each.kind)
        is_link = re.fullmatch(r"(?i)https?://[^\s()<>]+", each.url)
        lines.append(f"[{label}]({each.url})" if is_link else label)
    return "\n\n".join(part for part in (entry.text, "\n".join(lines)) if part)


def plain_text(payload: Raw | UnsetType) -> str:
    """Return a text as it is, and any other value as JSON."""
    value = None if payload is UNSET else msgspec.json.decode(payload)
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
