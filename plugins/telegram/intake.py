"""Intake: what becomes of an update.

update → `take` → message to an agent, command, answer to a prompt, or nothing

| update | what happens |
| --- | --- |
| message of somebody who may write | `push`; `/start` and `/stop` are the bridge's own |
| edited message | `push` as a message of its own, with `edited` in its metadata |
| button | the answer to a prompt |
| message in a group that is not meant for the bot | nothing |
| anything else, or what cannot be read | nothing; it is logged |
"""

from __future__ import annotations

import logging
from typing import Any

import anyio
from aiogram.methods import SendMessage
from aiogram.types import Message, ReplyParameters, Update
from pydantic import ValidationError

from busd import Bridge, BusdError, CallRefused, Refuse
from busd.bridge import Inbound, TooLarge
from busd_plugins.telegram.access import Access, Me
from busd_plugins.telegram.api import Api
from busd_plugins.telegram.attachments import Attachments
from busd_plugins.telegram.chats import Chats, turn_of
from busd_plugins.telegram.faults import Fault
from busd_plugins.telegram.prompts import Prompts
from busd_plugins.telegram.raw import Raw, reduced

log = logging.getLogger("busd.telegram")

_MAX_QUOTED = 1_000
_MAX_REFUSED = 10_000
_REFUSED_SECONDS = 3_600.0  # between two notices to somebody who may not write
_NOTICE_SECONDS = 10.0
WELCOME = "Hello. Write a message, and the agent answers. /stop ends an answer."
STOPPED = "Stopped."


class Intake:
    """Processes updates; those of one chat one after the other."""

    def __init__(
        self,
        bridge: Bridge,
        api: Api,
        me: Me,
        access: Access,
        chats: Chats,
        prompts: Prompts,
        attachments: Attachments,
        *,
        takes_all: bool,
    ) -> None:
        self._bridge = bridge
        self._api = api
        self._me = me
        self._access = access
        self._chats = chats
        self._prompts = prompts
        self._attachments = attachments
        self._takes_all = takes_all  # messages in groups that are not addressed to the bot, too
        self._refused: dict[int, float] = {}  # users, and when they were told that they may not

    async def take(self, raw: Raw) -> None:
        """Process an update; return when it may be confirmed. Raise BusdError if the bus fails."""
        update_id = raw.get("update_id")
        try:
            update = Update.model_validate(reduced(raw), context={"bot": self._api.bot})
        except ValidationError as problem:
            [first, *_] = problem.errors(include_input=False, include_url=False)
            where = ".".join(str(each) for each in first["loc"])
            log.warning("update %s is skipped: %s: %s", update_id, where, first["msg"])
            return
        self._bridge.note_update()
        try:
            await self._take(update)
        except BusdError:
            raise
        except Fault as fault:
            log.warning("update %d: %s", update.update_id, fault)
        except Exception:
            # Nothing would come after it if it were not confirmed.
            log.exception("update %d is skipped: the bridge has failed", update.update_id)
            if message := update.message:
                await self._tell(message, "Your message could not be passed on.")

    async def _take(self, update: Update) -> None:
        if update.message is not None:
            await self._take_message(update.message, update.update_id)
        elif update.edited_message is not None:
            await self._take_message(update.edited_message, update.update_id, is_edit=True)
        elif update.callback_query is not None:
            query = update.callback_query
            chat = query.message.chat.id if query.message else query.from_user.id
            if self._access.allows(query.from_user.id, chat, self._chats.inner(chat)):
                await self._prompts.take(query, update.update_id, self._key(update.update_id))
        else:
            kinds = ", ".join(sorted(update.model_dump(exclude_none=True).keys() - {"update_id"}))
            log.info("update %d is skipped: %s", update.update_id, kinds or "unknown")

    def _key(self, update_id: int) -> str:
        """Return what identifies an update among those of all bots."""
        return f"{self._me.id}:{update_id}"

    async def _take_message(
        self, message: Message, update_id: int, *, is_edit: bool = False
    ) -> None:
        if message.migrate_to_chat_id:
            self._chats.move(message.chat.id, message.migrate_to_chat_id)
            return
        sender = message.sender_chat or message.from_user
        if sender is None or (message.from_user and message.from_user.id == self._me.id):
            return
        is_private = message.chat.type == "private"
        if not is_private and not (self._takes_all or self._me.is_addressed(message)):
            return
        chat_id = self._chats.inner(message.chat.id)
        if not self._access.allows(sender.id, message.chat.id, chat_id):
            await self._refuse(message, sender.id, is_private=is_private)
            return
        text = message.text or message.caption or ""
        command = self._me.command_of(text)
        if command in ("start", "stop"):
            await self._obey(command, chat_id, message)
            return
        await self._push(message, update_id, chat_id, str(sender.id), text, is_edit=is_edit)

    async def _obey(self, command: str, chat_id: str, message: Message) -> None:
        if command == "start":
            await self._tell(message, WELCOME)
            return
        try:
            await self._bridge.cancel(chat_id)
        except (BusdError, Refuse) as refusal:
            await self._tell(message, f"This could not be stopped: {refusal}")
        else:
            await self._tell(message, STOPPED)

    async def _push(
        self,
        message: Message,
        update_id: int,
        chat_id: str,
        sender_id: str,
        text: str,
        *,
        is_edit: bool,
    ) -> None:
        fetched = await self._attachments.fetch(message)
        if not text and not fetched.attachments:
            log.info("update %d is skipped: it has no text and no file", update_id)
            if message.chat.type == "private" and not is_edit:
                await self._tell(message, "This kind of message cannot be passed on.")
            return
        user = message.from_user
        inbound = Inbound(
            chat_id=chat_id,
            text=self._me.without_name(text),
            sender_id=sender_id,
            external_id=self._key(update_id),
            message_id=turn_of(message, f"e{update_id}" if is_edit else ""),
            username=(user.username or "") if user else "",
            full_name=user.full_name if user else "",
            attachments=fetched.attachments,
            thread_id=str(message.message_thread_id or "") if message.is_topic_message else "",
            metadata={"telegram": _metadata_of(message, is_edit=is_edit)},
        )
        self._prompts.note_asker(inbound)
        try:
            await self._bridge.push(inbound)
        except TooLarge:
            await self._tell(message, "Your message is too large to be passed on.")
        except CallRefused as refusal:
            await self._tell(message, f"Your message was not accepted: {refusal}")
        else:
            if fetched.notice:
                await self._tell(message, fetched.notice)

    async def _refuse(self, message: Message, sender_id: int, *, is_private: bool) -> None:
        """Inform a user without access, once an hour; send nothing to groups."""
        log.info("user %d may not write in chat %d", sender_id, message.chat.id)
        now = anyio.current_time()
        if not is_private or now < self._refused.get(sender_id, 0.0):
            return
        if len(self._refused) >= _MAX_REFUSED:
            self._refused.clear()
        self._refused[sender_id] = now + _REFUSED_SECONDS
        await self._tell(message, f"You may not use this bot. (Your user id is {sender_id}.)")

    async def _tell(self, message: Message, text: str) -> None:
        """Reply to a message in the bridge's own name; if that fails, it is only logged."""
        method = SendMessage(
            chat_id=message.chat.id,
            text=text[:1_000],
            message_thread_id=message.message_thread_id if message.is_topic_message else None,
            reply_parameters=ReplyParameters(
                message_id=message.message_id, allow_sending_without_reply=True
            ),
        )
        try:
            await self._api.call(method, seconds=_NOTICE_SECONDS)
        except Fault as fault:
            log.warning("chat %d was not told %r: %s", message.chat.id, text[:80], fault)


def _metadata_of(message: Message, *, is_edit: bool) -> dict[str, Any]:
    """Return what an agent may want to know: all of it is bounded."""
    said: dict[str, Any] = {
        "message_id": message.message_id,
        "chat_type": message.chat.type,
    }
    if message.chat.title:
        said["chat_title"] = message.chat.title
    if is_edit:
        said["edited"] = True
    if replied := message.reply_to_message:
        said["reply_to"] = {"message_id": replied.message_id}
        if replied.from_user:
            said["reply_to"]["from"] = replied.from_user.full_name
        if quoted := (replied.text or replied.caption or ""):
            said["reply_to"]["text"] = quoted[:_MAX_QUOTED]
    return said
