"""The outlet: what is posted, edited and shown at Discord.

Each message has a nonce that Discord checks: within some minutes the same nonce is the same
message. A part that is posted again later is first looked for in the channel.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
from collections.abc import Coroutine
from typing import Any, TypeVar

import discord

from busd import Refuse
from busd.bridge import Attachment, MaybePosted, Part
from busd_plugins.discord.faults import GoneMessage, NoPermission, Unauthorized, translated
from busd_plugins.discord.record import Record
from busd_plugins.discord.session import Session
from busd_plugins.discord.splitting import MAX_CHARACTERS, Extra

R = TypeVar("R")
_NOBODY = discord.AllowedMentions.none()  # an agent cannot call people
_LOOK_BACK = 100  # messages in which a repeated part is looked for
_MAX_FILE_BYTES = 10 * 1024 * 1024  # Discord's limit for bots


class Outlet:
    """Posts parts, and whatever else the bridge says."""

    def __init__(self, session: Session, record: Record, seconds: float) -> None:
        self._session = session
        self._seconds = seconds  # for a request
        self._record = record

    async def post(self, part: Part) -> str:
        """Post a part; return the id of its message."""
        channel_id = snowflake(part.chat_id)
        if part.reply.reply_to and not part.reply.prompt_id:
            # The turn goes on or is over: whatever it has asked is not open any more.
            self._record.close_questions(part.chat_id, part.reply.reply_to)
        if part.is_repeat and (found := await self._find(channel_id, part)):
            return str(found)
        if part.draft.isdecimal():
            try:
                return await self.edit(channel_id, int(part.draft), part.text)
            except GoneMessage:
                pass  # somebody has deleted it
        return await self.send(
            channel_id,
            part.text,
            nonce=part.nonce,
            reply_to=part.reply.reply_to if part.number == 1 else "",
            files=part.extra.files if isinstance(part.extra, Extra) else (),
        )

    async def send(
        self,
        channel_id: int,
        text: str,
        *,
        nonce: str,
        reply_to: str = "",
        files: tuple[Attachment, ...] = (),
        view: discord.ui.View | None = None,
    ) -> str:
        """Post a message; return its id."""
        channel = self._channel(channel_id)
        more: dict[str, Any] = {}  # arguments of several types
        question = question_of(reply_to)
        if question and not self._record.is_direct(channel_id):
            more["reference"] = discord.MessageReference(
                message_id=question, channel_id=channel_id, fail_if_not_exists=False
            )
        if files:
            text, more["files"] = _files_of(text, files)
        if view is not None:
            more["view"] = view
        sent = await self._call(channel.send(text, nonce=nonce, allowed_mentions=_NOBODY, **more))
        self._record.note_own(nonce, sent.id)
        return str(sent.id)

    async def edit(self, channel_id: int, message_id: int, text: str) -> str:
        """Change a message of ours; raise GoneMessage if there is none."""
        message = self._channel(channel_id).get_partial_message(message_id)
        content = text[:MAX_CHARACTERS]
        await self._call(message.edit(content=content, allowed_mentions=_NOBODY, view=None))
        return str(message_id)

    async def type_in(self, channel_id: int) -> None:
        """Show "typing…" for some seconds."""
        await self._call(self._session.client().http.send_typing(channel_id))

    async def _find(self, channel_id: int, part: Part) -> int | None:
        """Return the message of a part that was perhaps posted, if it is there."""
        known = self._record.own(part.nonce)
        if known is not None:
            return known
        try:
            found = await self._call(self._candidates(channel_id, part))
        except NoPermission:
            return None  # to read the history; then the nonce has to do
        if not found:
            return None
        # Those before it with the same text are on record, so one that is not is this one.
        self._record.note_own(part.nonce, found[-1])
        return found[-1]

    async def _candidates(self, channel_id: int, part: Part) -> list[int]:
        """Return messages with the text of a part that are ours, but not on record."""
        question, user = question_of(part.reply.reply_to), self._session.client().user
        after = discord.Object(question) if question else None
        history = self._channel(channel_id).history(
            limit=_LOOK_BACK, after=after, oldest_first=False
        )
        return [
            each.id
            async for each in history
            if user is not None
            and each.author.id == user.id
            and each.content == part.text != ""
            and not self._record.is_own(each.id)
        ]

    def _channel(self, channel_id: int) -> discord.PartialMessageable:
        return self._session.client().get_partial_messageable(channel_id)

    async def _call(self, request: Coroutine[Any, Any, R]) -> R:
        """Return the result of a request; raise what the kit knows.

        It is a task of its own: a request of discord.py that is cancelled as anyio does it, again
        and again, would leave its rate limit in a state that blocks those after it.
        """
        task = asyncio.create_task(request)
        task.add_done_callback(_forget_outcome)
        try:
            done, _ = await asyncio.wait([task], timeout=self._seconds)
            if not done:
                raise MaybePosted(f"Discord did not answer within {self._seconds:g} seconds")
            with translated():
                return task.result()
        except Unauthorized:
            self._session.note_unauthorized()
            raise
        finally:
            task.cancel()


def _forget_outcome(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a request that nobody waits for any more."""
    if not task.cancelled():
        task.exception()


def snowflake(chat_id: str) -> int:
    """Return the channel of a chat; raise Refuse if it can be none."""
    if not chat_id.isdecimal() or not chat_id.isascii() or len(chat_id) > 20:
        raise Refuse(f"{chat_id[:40]!r} is no channel of Discord")
    return int(chat_id)


def question_of(turn: str) -> int | None:
    """Return the message that began a turn; that of an edit is `ID-edit-TIME`."""
    said = turn.partition("-")[0]
    is_one = said.isdecimal() and said.isascii() and len(said) <= 20
    return int(said) if is_one else None


def _files_of(text: str, attachments: tuple[Attachment, ...]) -> tuple[str, list[discord.File]]:
    """Return files to upload; the text names those that cannot be."""
    files, lines = [], [text] if text else []
    for each in attachments:
        name = (each.name or each.kind)[:100]
        try:
            data = base64.b64decode(each.data, validate=True)
        except (binascii.Error, ValueError):
            lines.append(f"({name} could not be read)")
            continue
        if len(data) > _MAX_FILE_BYTES:
            lines.append(f"({name} is too large for Discord: {len(data):,} bytes)")
            continue
        files.append(discord.File(io.BytesIO(data), filename=name))
    return "\n".join(lines)[:MAX_CHARACTERS], files
