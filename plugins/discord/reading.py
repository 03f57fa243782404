"""Reading: which messages of Discord are for the bot, and what is pushed of them."""

from __future__ import annotations

import re
from typing import Any

import discord

from busd.bridge import Attachment, Inbound
from busd_plugins.discord.settings import DiscordTable

_KINDS = (discord.MessageType.default, discord.MessageType.reply)
_FILE_KINDS = ("image", "audio", "video")


def is_direct(message: discord.Message) -> bool:
    """Return whether a message of the gateway is one to the bot alone."""
    return isinstance(message.channel, discord.DMChannel)


def may_write(table: DiscordTable, user_id: int) -> bool:
    """Return whether a user may talk to the bot at all."""
    return not table.allow_users or user_id in table.allow_users


def inbound_of(
    message: discord.Message,
    table: DiscordTable,
    own_id: int,
    *,
    direct: bool,
    is_edit: bool = False,
) -> Inbound | None:
    """Return what is pushed of a message; None if it is not for the bot."""
    author = message.author
    if author.bot or message.webhook_id is not None or message.type not in _KINDS:
        return None
    if is_edit and message.edited_at is None:
        return None  # only its preview has changed
    if not _is_allowed(message, table, direct=direct):
        return None
    if not direct and table.groups == "addressed" and not _is_addressed(message, own_id):
        return None
    text = re.sub(rf"\s*<@!?{own_id}>[ \t]*", " ", message.content).strip()
    if not text and not message.attachments:
        return None
    external_id = str(message.id)
    if is_edit and message.edited_at is not None:
        external_id += f"-edit-{int(message.edited_at.timestamp() * 1000)}"
    return Inbound(
        chat_id=str(message.channel.id),
        text=text,
        sender_id=str(author.id),
        external_id=external_id,
        username=author.name,
        full_name=author.display_name,
        attachments=tuple(_attachment(each, table) for each in message.attachments),
        thread_id=str(message.channel.id) if isinstance(message.channel, discord.Thread) else "",
        metadata=_metadata(message, is_edit=is_edit),
    )


def _is_allowed(message: discord.Message, table: DiscordTable, *, direct: bool) -> bool:
    if not may_write(table, message.author.id):
        return False
    if direct:
        # Who restricts the bot to some servers does not want everybody to write to it directly.
        is_restricted = bool(table.allow_guilds or table.allow_channels)
        return bool(table.allow_users) or not is_restricted
    guild_id = message.guild.id if message.guild else getattr(message.channel, "guild_id", None)
    if table.allow_guilds and guild_id not in table.allow_guilds:
        return False
    channels = {message.channel.id, getattr(message.channel, "parent_id", None)}
    return not table.allow_channels or not channels.isdisjoint(table.allow_channels)


def _is_addressed(message: discord.Message, own_id: int) -> bool:
    """Return whether a message mentions the bot, or answers one of its messages."""
    if own_id in message.raw_mentions or any(each.id == own_id for each in message.mentions):
        return True
    answered = message.reference.resolved if message.reference else None
    return isinstance(answered, discord.Message) and answered.author.id == own_id


def _attachment(said: discord.Attachment, table: DiscordTable) -> Attachment:
    mime = said.content_type or ""
    family = mime.partition("/")[0]
    is_small = said.size <= table.max_attachment_bytes
    return Attachment(
        kind=family if family in _FILE_KINDS else "file",
        url=said.url if is_small else "",
        name=said.filename,
        mime=mime,
        size=said.size,
    )


def _metadata(message: discord.Message, *, is_edit: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if message.guild is not None:
        found["guild_id"] = str(message.guild.id)
        found["channel_name"] = str(getattr(message.channel, "name", ""))
    if message.reference is not None and message.reference.message_id is not None:
        found["reply_to_message_id"] = str(message.reference.message_id)
    if is_edit:
        found["edits_message_id"] = str(message.id)
    return found
