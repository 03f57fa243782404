"""Access: who may write to the bot, and which messages in groups are meant for it."""

from __future__ import annotations

import re

from aiogram.types import Message, MessageEntity

from busd_plugins.telegram.settings import TelegramTable


class Access:
    """The allow-lists of the settings.

    With `allow_chats` alone, private chats are served only if they are listed, too: else everybody
    could write to a bot that was set up for one group.
    """

    def __init__(self, table: TelegramTable) -> None:
        self._users = frozenset(table.allow_users)
        self._chats = frozenset(table.allow_chats)

    def allows(self, sender_id: int, chat_id: int, chat_id_before: str) -> bool:
        """Return whether a sender may write in a chat; the chat may have had another id before."""
        if self._users and sender_id not in self._users:
            return False
        is_listed = chat_id in self._chats or chat_id_before in map(str, self._chats)
        if chat_id > 0:  # a private chat
            return bool(self._users) or not self._chats or is_listed
        return not self._chats or is_listed


class Me:
    """The bot itself, as users address it."""

    def __init__(self, id: int, username: str) -> None:  # noqa: A002
        self.id = id
        self.username = username.lower()

    def is_addressed(self, message: Message) -> bool:
        """Return whether a message in a group mentions the bot, replies to it, or is a command."""
        replied = message.reply_to_message
        if replied and replied.from_user and replied.from_user.id == self.id:
            return True
        text = message.text or message.caption or ""
        entities = message.entities or message.caption_entities or []
        return any(self._is_about_me(each, text) for each in entities)

    def _is_about_me(self, entity: MessageEntity, text: str) -> bool:
        if entity.type == "text_mention":
            return entity.user is not None and entity.user.id == self.id
        words = entity.extract_from(text).lower()
        if entity.type == "mention":
            return words == f"@{self.username}"
        if entity.type == "bot_command":
            _, at, bot = words.partition("@")
            return entity.offset == 0 and (not at or bot == self.username)
        return False

    def command_of(self, text: str) -> str:
        """Return the command that a text begins with, such as `start`; "" if it is another's."""
        found = re.match(r"/(\w{1,32})(?:@(\w+))?(?:\s|$)", text)
        if not found or (found[2] and found[2].lower() != self.username):
            return ""
        return found[1].lower()

    def without_name(self, text: str) -> str:
        """Return a text without the bot's name at its beginning or in its command."""
        name = re.escape(self.username)
        text = re.sub(rf"^(/\w{{1,32}})@{name}\b", r"\1", text, flags=re.IGNORECASE)
        return re.sub(rf"^@{name}\b[\s,:]*", "", text, flags=re.IGNORECASE)
