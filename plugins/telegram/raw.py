"""Updates as Telegram sends them: nothing of what they contain is checked yet."""

from __future__ import annotations

import logging
from typing import Any

log = logging.getLogger("busd.telegram")

Raw = dict[str, Any]
KINDS = ("message", "edited_message", "callback_query")
# The members of a message that are read. All others are left out before aiogram checks it, which
# would refuse a message because of what a newer version of Telegram has added to it.
_MEMBERS = frozenset(
    {
        *("message_id", "date", "chat", "from", "sender_chat", "migrate_to_chat_id"),
        *("text", "caption", "entities", "caption_entities", "reply_to_message"),
        *("message_thread_id", "is_topic_message"),
        *("photo", "voice", "video_note", "audio", "video", "animation", "document"),
    }
)


def id_of(raw: Any) -> int | None:  # Any: nothing of what Telegram sends is checked yet
    """Return the id of an update; None if it has none."""
    update_id = raw.get("update_id") if isinstance(raw, dict) else None
    if not isinstance(update_id, int):
        log.warning("an update without an id is skipped")
        return None
    return update_id


def chat_of(raw: Raw) -> str:
    """Return what all updates of a chat have in common."""
    for kind in KINDS:
        said = raw.get(kind)
        if isinstance(said, dict):
            inner = said.get("message") if kind == "callback_query" else said
            chat = inner.get("chat") if isinstance(inner, dict) else None
            return str(chat.get("id")) if isinstance(chat, dict) else ""
    return ""


def reduced(raw: Raw) -> Raw:
    """Return an update with nothing but what is read of its message."""
    found = dict(raw)
    for kind in KINDS:
        said = raw.get(kind)
        if not isinstance(said, dict):
            continue
        if kind != "callback_query":
            found[kind] = _reduced_message(said)
        elif isinstance(said.get("message"), dict):
            found[kind] = said | {"message": _reduced_message(said["message"])}
    return found


def _reduced_message(said: Raw) -> Raw:
    message = {name: value for name, value in said.items() if name in _MEMBERS}
    replied = said.get("reply_to_message")
    if isinstance(replied, dict):  # what that one replies to is not read
        message["reply_to_message"] = _reduced_message({**replied, "reply_to_message": None})
    return message
