"""OpenAI-style content: messages of texts, pictures, sounds and files."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Raw

from busd.gateway import Attachment, Entry
from busd_plugins.agentiq.faults import Invalid

_CODE = "invalid_user_message_content"
_DATA_URL = re.compile(r"data:(?P<mime>[^;,]*)(?:;[^;,]*)*;base64,(?P<data>.*)", re.DOTALL)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
# The member that holds a part's value, and the kind of attachment, by the part's type. The second
# spelling is that of OpenAI's newer interface, the third what the toolkit's web UI sends.
_MAX_PARTS = 1_000  # of one message
_TEXTS = ("text", "input_text", "output_text")
_KINDS = {
    "image_url": ("image_url", "image"),
    "input_image": ("image_url", "image"),
    "image": ("image_url", "image"),
    "input_audio": ("input_audio", "audio"),
    "audio": ("input_audio", "audio"),
    "video_url": ("video_url", "video"),
    "video": ("video_url", "video"),
    "file": ("file", "file"),
    "input_file": ("file", "file"),
}


class Content(msgspec.Struct):
    """The content of a message: the history, each with `role` and `content`, or only a text."""

    messages: list[Any] = []
    text: str = ""


class Words(msgspec.Struct):
    """What the user says last."""

    texts: tuple[str, ...]
    attachments: tuple[Attachment, ...]
    where: str  # the path of the text, for errors

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def words_of(content: str | list[Any] | Content) -> Words:
    """Return the last words of the user; raise Invalid."""
    if isinstance(content, Content):
        if not content.messages and content.text:
            return Words((content.text,), (), "content.text")
        if not content.messages:
            raise Invalid(_CODE, "content.messages", "missing or empty")
        for number in reversed(range(len(content.messages))):
            message, at = content.messages[number], f"content.messages[{number}]"
            if not isinstance(message, dict):
                raise Invalid(_CODE, at, "expected an object with role and content")
            if message.get("role") in (None, "user"):
                return _read(message.get("content"), f"{at}.content")
        raise Invalid(_CODE, "content.messages", "none has the role user")
    return _read(content, "content")


def _read(content: Any, path: str) -> Words:
    if isinstance(content, str):
        return Words((content,), (), path)
    if not isinstance(content, list):
        what = "missing" if content is None else f"got {type(content).__name__}"
        raise Invalid(_CODE, path, f"{what}; expected a string or an array of parts")
    if len(content) > _MAX_PARTS:
        raise Invalid(_CODE, path, f"more than {_MAX_PARTS} parts")
    texts: list[str] = []
    attachments: list[Attachment] = []
    where = path
    for number, part in enumerate(content):
        at = f"{path}[{number}]"
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, dict):
            raise Invalid(_CODE, at, "expected an object with a type")
        part = without_nulls(part)
        kind = _kind_of(part, at)
        if kind in _TEXTS:
            where = where if texts else f"{at}.text"
            texts.append(_string(part, "text", at))
        else:
            attachments.append(_attachment(part, kind, at))
    return Words(tuple(texts), tuple(attachments), where)


def without_nulls(value: Any) -> Any:
    """Return a value without the members that are null: that is the same as absent."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    return value


def _kind_of(part: dict[str, Any], at: str) -> str:
    kind = part.get("type")
    if kind is None:  # then its members tell
        members = ("text", *_KINDS)
        kind = next((name for name in members if name in part), None)
    if kind is None:
        raise Invalid(_CODE, f"{at}.type", "missing")
    if kind not in _TEXTS and kind not in _KINDS:
        known = ", ".join((*_TEXTS[:1], "image_url", "input_audio", "file"))
        raise Invalid(_CODE, f"{at}.type", f"unknown: {kind!r}"[:80] + f"; it is one of {known}")
    return str(kind)


def _string(within: dict[str, Any], name: str, at: str) -> str:
    found = within.get(name)
    if not isinstance(found, str):
        what = "missing" if found is None else f"expected a string, got {type(found).__name__}"
        raise Invalid(_CODE, f"{at}.{name}", what)
    return found


def _attachment(part: dict[str, Any], kind: str, at: str) -> Attachment:
    member, meaning = _KINDS[kind]
    found = part.get(member, part)
    if isinstance(found, str):
        found = {"url": found}
    if not isinstance(found, dict):
        raise Invalid(_CODE, f"{at}.{member}", "expected an object or a string")
    at = f"{at}.{member}" if member in part else at
    if meaning == "audio":
        return _sound(found, at)
    if meaning == "file":
        return _file(found, at)
    return _linked(meaning, _string(found, "url", at), f"{at}.url", found, ("url",))


def _sound(found: dict[str, Any], at: str) -> Attachment:
    if "data" not in found and "url" in found:
        return _linked("audio", _string(found, "url", at), f"{at}.url", found, ("url",))
    mime = found.get("format")
    mime = f"audio/{mime}" if isinstance(mime, str) and mime else ""
    return _linked("audio", _string(found, "data", at), f"{at}.data", found, ("data",), mime=mime)


def _file(found: dict[str, Any], at: str) -> Attachment:
    name = found.get("filename")
    name = name if isinstance(name, str) else ""
    for member in ("file_data", "file_url", "url"):
        if isinstance(found.get(member), str):
            used = (member, "filename")
            return _linked("file", found[member], f"{at}.{member}", found, used, name=name)
    _string(found, "file_id", at)
    return Attachment("file", name=name, extra=_extra(found, ("filename",)))


def _linked(
    kind: str,
    value: str,
    at: str,
    found: dict[str, Any],
    used: tuple[str, ...],
    *,
    name: str = "",
    mime: str = "",
) -> Attachment:
    """Return an attachment of a link, or of data in base64 with or without `data:` before them."""
    extra = _extra(found, ("type", *used))
    if value.lower().startswith(("http://", "https://")):
        return Attachment(kind, url=value, name=name, mime=mime, extra=extra)
    if inline := _DATA_URL.fullmatch(value):
        value, mime = inline["data"], inline["mime"] or mime
    if not _BASE64.fullmatch(value):
        raise Invalid(_CODE, at, "expected a link (http or https), a data URL or base64")
    return Attachment(kind, data=value, name=name, mime=mime, extra=extra)


def _extra(found: dict[str, Any], used: tuple[str, ...]) -> Raw | msgspec.UnsetType:
    rest = {name: value for name, value in found.items() if name not in used}
    return Raw(msgspec.json.encode(rest)) if rest else msgspec.UNSET


def text_with_attachments(entry: Entry) -> str:
    """Return an entry as one text: Markdown, with a line for each attachment."""
    lines = [_line(each) for each in entry.attachments]
    return "\n\n".join(part for part in (entry.text, "\n".join(lines)) if part)


def _line(attachment: Attachment) -> str:
    label = attachment.name or attachment.kind
    for mark in "[]\n\r":
        label = label.replace(mark, " ")
    url = attachment.url
    if url.lower().startswith(("http://", "https://")) and not re.search(r"[\s()<>]", url):
        return f"{'!' if attachment.kind == 'image' else ''}[{label}]({url})"
    return f"{label} ({attachment.mime})" if attachment.mime else label
