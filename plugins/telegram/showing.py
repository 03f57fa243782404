"""Showing: "typing…", the answer as it is streamed, and prompts, while an agent works."""

from __future__ import annotations

import logging

from aiogram.methods import SendChatAction

from busd import Refuse
from busd.bridge import LiveTurn, SlowDown
from busd_plugins.telegram.api import Api
from busd_plugins.telegram.chats import Chats, GroupPace, is_group, place_of
from busd_plugins.telegram.faults import Fault
from busd_plugins.telegram.markdown import format_markdown, split_formatted
from busd_plugins.telegram.posting import Outgoing, Poster
from busd_plugins.telegram.prompts import Prompts

log = logging.getLogger("busd.telegram")

_GOES_ON = " …"
_LIMIT = 4_000
_MAX_TURNS = 2_000


class Shower:
    """Shows live turns; of what Telegram does not take now, the next state is shown later."""

    def __init__(
        self, api: Api, chats: Chats, pace: GroupPace, poster: Poster, prompts: Prompts
    ) -> None:
        self._api = api
        self._chats = chats
        self._pace = pace
        self._poster = poster
        self._prompts = prompts
        self._texts: dict[tuple[str, str], str] = {}  # what the draft of a turn shows

    async def show(self, live: LiveTurn) -> None:
        """Show what has changed; raise Refuse or SlowDown."""
        try:
            await self._show(live)
        except Fault as fault:
            if fault.kind == "slow_down":
                raise SlowDown(fault.seconds, everywhere=not is_group(live.chat_id)) from None
            raise Refuse(fault.description) from None

    async def _show(self, live: LiveTurn) -> None:
        await self._prompts.show(live)
        # After a restart the beginning is missing; the reply is edited into the draft all the same.
        if live.text and not live.is_cut:
            await self._show_draft(live)
        if live.is_working and not (live.text and live.draft):
            await self._show_typing(live)

    async def _show_typing(self, live: LiveTurn) -> None:
        place = place_of(live.turn)
        await self._api.call(
            SendChatAction(
                chat_id=self._chats.outer(live.chat_id),
                action="typing",
                message_thread_id=place.thread_id or None,
            )
        )

    async def _show_draft(self, live: LiveTurn) -> None:
        """Post the text so far, or edit the message that shows it."""
        key = (live.chat_id, live.turn)
        pieces = split_formatted(format_markdown(live.text), _LIMIT)
        if not pieces:
            return
        end = _GOES_ON if live.is_working else ""
        draft = pieces[0]._replace(text=pieces[0].text + end)
        known = self._texts.get(key)
        chat_id = self._chats.outer(live.chat_id)
        is_lost = known is not None and not live.draft  # it was posted, and we do not know as what
        if known == draft.text or is_lost or not self._pace.try_take(chat_id):
            return
        place = place_of(live.turn)
        outgoing = Outgoing(chat_id, draft, thread_id=place.thread_id)
        outgoing.edits = int(live.draft) if live.draft.isdigit() else 0
        if is_group(chat_id):
            outgoing.reply_to = place.message_id
        try:
            live.draft = await self._poster.send(outgoing)
        except Fault as fault:
            if fault.kind == "unknown":
                self._note(key, draft.text)
            raise
        self._note(key, draft.text)

    def _note(self, key: tuple[str, str], text: str) -> None:
        self._texts.pop(key, None)
        while len(self._texts) >= _MAX_TURNS:
            del self._texts[next(iter(self._texts))]
        self._texts[key] = text
