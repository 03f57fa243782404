"""Files: found in payloads for agents, and handed out to clients as links that expire."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw

from busd.gateway import Attachment
from busd_plugins.group.errors import Invalid
from busd_plugins.group.messages import Json

_encode = msgspec.json.encode
_KINDS = {"image": "image", "voice": "audio", "audio": "audio", "video": "video", "file": "file"}
_URLS = ("url", "file_url", "image_url", "voice_url", "audio_url", "video_url")
_KNOWN = {*_URLS, "data", "name", "file_name", "filename", "mime_type", "mime", "size", "file_size"}
_MAX_FILES = 100


def read_attachments(kind: str, payload: Json) -> tuple[Attachment, ...]:
    """Return the files of a message of this type; raise Invalid."""
    listed = payload.get("attachments", [])
    if not isinstance(listed, list):
        raise Invalid("payload.attachments", "必须是数组")
    if len(listed) > _MAX_FILES:
        raise Invalid("payload.attachments", f"超过{_MAX_FILES}项")
    files = []
    for number, item in enumerate(listed):
        if not isinstance(item, dict):
            raise Invalid(f"payload.attachments[{number}]", "必须是对象")
        files.append(_file(_KINDS.get(str(item.get("type")), "file"), item))
    if kind in ("image", "file", "voice") and (
        _url(payload) or isinstance(payload.get("data"), str)
    ):
        own = {name: value for name, value in payload.items() if name in _KNOWN}
        files.insert(0, _file(_KINDS[kind], own))
    return tuple(files)


def _file(kind: str, given: Json) -> Attachment:
    size = given.get("size", given.get("file_size"))
    extra = {name: value for name, value in given.items() if name not in _KNOWN}
    return Attachment(
        kind=kind,
        url=_url(given),
        data=_text(given, "data"),
        name=_text(given, "name", "file_name", "filename"),
        mime=_text(given, "mime_type", "mime"),
        size=size if isinstance(size, int) and not isinstance(size, bool) else UNSET,
        extra=Raw(_encode(extra)) if extra else UNSET,
    )


def _url(given: Json) -> str:
    return _text(given, *_URLS)


def _text(given: Json, *names: str) -> str:
    """Return the first of these members that is a text."""
    return next((given[name] for name in names if isinstance(given.get(name), str)), "")


def shown_attachment(file: Attachment) -> Json:
    """Return a file of another dialect's message as this format describes one."""
    shown: Json = {"name": file.name, "type": file.kind}
    if file.url:
        shown["url"] = file.url
    if file.data:
        shown["data"] = file.data
    if file.mime:
        shown["mime_type"] = file.mime
    if file.size is not UNSET:
        shown["size"] = file.size
    return shown
