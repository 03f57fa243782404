"""Attachments: photos, documents, voice and video of a message, as far as they are small enough.

The content travels in the message to the agent, which the bus limits to 1 MiB: of a file that does
not fit, only its name is passed on. Of a photo, Telegram has several sizes: the largest that fits.
"""

from __future__ import annotations

import base64
import logging
from typing import NamedTuple

import anyio
from aiogram.types import Message

from busd.bridge import Attachment
from busd_plugins.telegram.api import Api
from busd_plugins.telegram.faults import Fault

log = logging.getLogger("busd.telegram")

MAX_INLINE_BYTES = 640 * 1024  # in base64 and with the text less than a frame of the bus
_ATTEMPTS = 3


class File(NamedTuple):
    """A file of a message at Telegram."""

    kind: str
    file_id: str
    size: int
    name: str
    mime: str


class Fetched(NamedTuple):
    """The attachments of a message, and what its user should know of them."""

    attachments: tuple[Attachment, ...] = ()
    notice: str = ""


class Attachments:
    """Downloads what is attached to messages."""

    def __init__(self, api: Api, max_bytes: int, pause_seconds: float) -> None:
        self._api = api
        self._limit = min(max_bytes, MAX_INLINE_BYTES)
        self._pause_seconds = pause_seconds

    async def fetch(self, message: Message) -> Fetched:
        """Return what is attached to a message."""
        file = self._file_of(message)
        if file is None:
            return Fetched()
        content: bytes | None = None
        notice = f"{file.name} is too large: only its name was passed on."
        if file.size <= self._limit:
            try:
                content = await self._download(file)
            except Fault as fault:
                log.warning("a file of chat %d is not passed on: %s", message.chat.id, fault)
                notice = f"{file.name} could not be read: only its name was passed on."
        data = base64.b64encode(content).decode() if content is not None else ""
        size = len(content) if content is not None else file.size
        attachment = Attachment(file.kind, data=data, name=file.name, mime=file.mime, size=size)
        return Fetched((attachment,), "" if content is not None else notice)

    async def _download(self, file: File) -> bytes | None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._api.download(file.file_id, self._limit)
            except Fault as fault:
                if fault.kind in ("bad_request", "forbidden") or attempt == _ATTEMPTS:
                    raise
                await anyio.sleep(max(fault.seconds, self._pause_seconds * attempt))
        raise AssertionError("unreachable")

    def _file_of(self, message: Message) -> File | None:
        number = message.message_id
        if message.photo:
            sizes = sorted(message.photo, key=lambda each: each.file_size or 0)
            fitting = [each for each in sizes if (each.file_size or 0) <= self._limit]
            photo = (fitting or sizes[:1])[-1]
            size = photo.file_size or 0
            return File("image", photo.file_id, size, f"photo{number}.jpg", "image/jpeg")
        if voice := message.voice:
            mime = voice.mime_type or "audio/ogg"
            return File("audio", voice.file_id, voice.file_size or 0, f"voice{number}.ogg", mime)
        if note := message.video_note:
            name = f"video{number}.mp4"
            return File("video", note.file_id, note.file_size or 0, name, "video/mp4")
        for kind, found in (
            ("audio", message.audio),
            ("video", message.video),
            ("video", message.animation),
            ("file", message.document),
        ):
            if found is not None:
                mime = found.mime_type or "application/octet-stream"
                name = found.file_name or f"{kind}{number}"
                return File(kind, found.file_id, found.file_size or 0, name, mime)
        return None
