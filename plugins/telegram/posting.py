"""Posting: replies of agents become messages, and the message of a draft becomes the reply.

reply → `split` → parts → `post` → Telegram
"""

from __future__ import annotations

import base64
import binascii
import logging
from typing import Any

import msgspec
from aiogram.methods import (
    EditMessageText,
    SendAudio,
    SendDocument,
    SendMessage,
    SendPhoto,
    SendVideo,
    SendVoice,
    TelegramMethod,
)
from aiogram.types import (
    BufferedInputFile,
    InlineKeyboardMarkup,
    LinkPreviewOptions,
    MessageEntity,
    ReplyParameters,
)

from busd.bridge import Attachment, Part, Reply
from busd_plugins.telegram.api import Api
from busd_plugins.telegram.chats import Chats, GroupPace, is_group, place_of
from busd_plugins.telegram.faults import Fault, refusal_of
from busd_plugins.telegram.markdown import (
    MAX_MESSAGE_UNITS,
    Formatted,
    Span,
    format_markdown,
    split_formatted,
    units,
)

log = logging.getLogger("busd.telegram")

REPEAT_MARK = "↻ "  # the message may be there twice
_LIMIT = MAX_MESSAGE_UNITS - len(REPEAT_MARK)
_MAX_CHANGES = 5  # of one message until Telegram takes it
_MAX_CAPTION = 200
_NOT_FETCHED = ("http url", "wrong file identifier", "webpage", "wrong type of the web page")
_NOT_A_PICTURE = ("photo_", "image_process_failed", "dimensions")
_FORMAT_REFUSED = ("can't parse entities", "entity", "entities")
_EDIT_REFUSED = ("message to edit not found", "message can't be edited", "message_id_invalid")


class Outgoing(msgspec.Struct):
    """A message to be posted or edited; it is changed if Telegram refuses it as it is."""

    chat_id: str  # at Telegram
    formatted: Formatted
    attachment: Attachment | None = None
    reply_to: int = 0
    thread_id: int = 0
    edits: int = 0  # the message that is edited into this one
    mark: str = ""
    markup: InlineKeyboardMarkup | None = None


class Poster:
    """Posts messages, each as Telegram accepts it."""

    def __init__(self, api: Api, chats: Chats, pace: GroupPace) -> None:
        self._api = api
        self._chats = chats
        self._pace = pace

    def split(self, reply: Reply) -> list[Part]:
        """Return the messages of a reply: its text, then its attachments."""
        pieces = split_formatted(format_markdown(reply.text), _LIMIT)
        parts = [Part(each.text, extra=each) for each in pieces]
        return parts + [Part("", extra=each) for each in reply.attachments]

    async def post(self, part: Part) -> str:
        """Post a part; return the id of its message. Raise Refuse."""
        reply = part.reply
        place = place_of(reply.reply_to)
        outgoing = Outgoing(
            self._chats.outer(part.chat_id),
            part.extra if isinstance(part.extra, Formatted) else Formatted(""),
            attachment=part.extra if isinstance(part.extra, Attachment) else None,
            thread_id=place.thread_id or _number(reply.thread_id),
            edits=_number(part.draft),
            mark=REPEAT_MARK if part.is_repeat else "",
        )
        if outgoing.attachment is not None:
            outgoing.edits = 0  # a text cannot become a file
        if part.number == 1 and is_group(part.chat_id):
            outgoing.reply_to = place.message_id
        self._pace.take(outgoing.chat_id)
        try:
            return await self.send(outgoing)
        except Fault as fault:
            raise refusal_of(fault, is_group=is_group(part.chat_id)) from None

    async def send(self, outgoing: Outgoing) -> str:
        """Post a message, changed as Telegram asks for; return its id. Raise Fault."""
        for _ in range(_MAX_CHANGES):
            try:
                done = await self._api.call(_request(outgoing))
            except Fault as fault:
                if outgoing.edits and fault.says("not modified"):
                    return str(outgoing.edits)
                if not self._change(outgoing, fault):
                    raise
                log.info("a message to %s is changed: %s", outgoing.chat_id, fault.description)
            else:
                # Editing has the message itself as its result, too.
                return str(done["message_id"])
        raise Fault("bad_request", "Telegram accepts the message in no form")

    def _change(self, outgoing: Outgoing, fault: Fault) -> bool:
        """Change a message so that Telegram may take it; return whether that is possible."""
        if fault.kind == "migrated":
            self._chats.move(outgoing.chat_id, fault.new_chat_id)
            outgoing.chat_id = str(fault.new_chat_id)
            outgoing.reply_to = outgoing.edits = outgoing.thread_id = 0
        elif outgoing.edits and fault.says(*_EDIT_REFUSED):
            outgoing.edits = 0
        elif outgoing.reply_to and fault.says("replied", "reply message"):
            outgoing.reply_to = 0
        elif outgoing.thread_id and fault.says("thread not found", "topic_deleted"):
            outgoing.thread_id = 0
        elif outgoing.formatted.spans and fault.says(*_FORMAT_REFUSED):
            outgoing.formatted = Formatted(outgoing.formatted.text)
        elif outgoing.attachment is not None:
            return _change_attachment(outgoing, fault)
        else:
            return False
        return True


def _change_attachment(outgoing: Outgoing, fault: Fault) -> bool:
    attachment = outgoing.attachment
    assert attachment is not None
    if attachment.kind != "file" and fault.says(*_NOT_A_PICTURE, "voice_messages_forbidden"):
        outgoing.attachment = msgspec.structs.replace(attachment, kind="file")
        return True
    if attachment.url and fault.says(*_NOT_FETCHED):
        outgoing.attachment = None
        outgoing.formatted = Formatted(_named(attachment, attachment.url))
        return True
    return False


def entities_of(formatted: Formatted, mark: str = "") -> list[MessageEntity] | None:
    """Return what formats a text, as Telegram counts it."""
    text = formatted.text
    return [_entity(text, each, units(mark)) for each in formatted.spans] or None


def _entity(text: str, span: Span, before: int) -> MessageEntity:
    return MessageEntity(
        type=span.type,
        offset=before + units(text[: span.start]),
        length=units(text[span.start : span.end]),
        url=span.extra if span.type == "text_link" else None,
        language=(span.extra or None) if span.type == "pre" else None,
    )


def _request(outgoing: Outgoing) -> TelegramMethod[Any]:
    """Return the request that posts a message as it is now."""
    text = outgoing.formatted.text
    if outgoing.edits:  # the same however often it happens: no mark
        return EditMessageText(
            chat_id=outgoing.chat_id,
            message_id=outgoing.edits,
            text=text,
            entities=entities_of(outgoing.formatted),
            link_preview_options=LinkPreviewOptions(is_disabled=True),
            reply_markup=outgoing.markup,
        )
    where: dict[str, Any] = {"chat_id": outgoing.chat_id}  # Any: options of several methods
    if outgoing.thread_id:
        where["message_thread_id"] = outgoing.thread_id
    if outgoing.reply_to:
        where["reply_parameters"] = ReplyParameters(
            message_id=outgoing.reply_to, allow_sending_without_reply=True
        )
    if outgoing.attachment is not None:
        return _file_request(outgoing.attachment, outgoing.mark, where)
    return SendMessage(
        text=outgoing.mark + text,
        entities=entities_of(outgoing.formatted, outgoing.mark),
        link_preview_options=LinkPreviewOptions(is_disabled=True),
        reply_markup=outgoing.markup,
        **where,
    )


def _file_request(attachment: Attachment, mark: str, where: dict[str, Any]) -> TelegramMethod[Any]:
    file: str | BufferedInputFile = attachment.url
    if not file:
        try:
            content = base64.b64decode(attachment.data, validate=True)
        except (binascii.Error, ValueError):
            content = b""
        if not content:
            return SendMessage(text=mark + _named(attachment, "an empty file"), **where)
        file = BufferedInputFile(content, filename=attachment.name or "file")
    if not isinstance(file, BufferedInputFile) and not file.startswith(("http://", "https://")):
        return SendMessage(text=mark + _named(attachment, file[:500]), **where)
    caption = mark.strip() or None
    match attachment.kind:
        case "image":
            return SendPhoto(photo=file, caption=caption, **where)
        case "audio" if attachment.mime in ("audio/ogg", "audio/opus"):
            return SendVoice(voice=file, caption=caption, **where)
        case "audio":
            return SendAudio(audio=file, caption=caption, **where)
        case "video":
            return SendVideo(video=file, caption=caption, **where)
        case _:
            return SendDocument(document=file, caption=caption, **where)


def _named(attachment: Attachment, what: str) -> str:
    name = attachment.name[:_MAX_CAPTION]
    return f"📎 {name}: {what}" if name else f"📎 {what}"


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
