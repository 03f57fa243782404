"""Showing: "typing…", the answer as it grows, and prompts with buttons or a menu."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256

import discord

from busd.bridge import LivePrompt, LiveTurn, Option
from busd_plugins.discord.faults import GoneMessage
from busd_plugins.discord.outlet import Outlet, snowflake
from busd_plugins.discord.record import Question, Record
from busd_plugins.discord.splitting import MAX_CHARACTERS, split_markdown

CUSTOM_ID = "busd"
_DRAFT_CHARACTERS = 1_900
_MAX_BUTTONS = 5
_MAX_OPTIONS = 25
_MAX_LABEL = 80
_MAX_KNOWN = 1_000
_YES_NO = (Option("1", "Yes", "yes"), Option("2", "No", "no"))


class Showing:
    """Shows live turns."""

    def __init__(self, outlet: Outlet, record: Record) -> None:
        self._outlet = outlet
        self._record = record
        self._shown: OrderedDict[tuple[str, str], str] = OrderedDict()  # the text of drafts

    async def show(self, live: LiveTurn) -> None:
        channel_id = snowflake(live.chat_id)
        if live.prompt is not None:
            if not live.prompt.external_id:
                await self._ask(channel_id, live, live.prompt)
        elif live.text and not live.is_cut:
            await self._draft(channel_id, live)
        elif live.is_working:
            await self._outlet.type_in(channel_id)

    async def _draft(self, channel_id: int, live: LiveTurn) -> None:
        """Show the answer so far in one message."""
        pieces = split_markdown(live.text, _DRAFT_CHARACTERS)
        if not pieces or live.error is not None:
            return
        ending = " …" if live.is_working else "\n*(stopped)*"
        text = pieces[0] + ending
        key = (live.chat_id, live.turn)
        if self._shown.get(key) == text:
            return
        if live.draft:
            try:
                await self._outlet.edit(channel_id, int(live.draft), text)
            except GoneMessage:
                live.draft = ""
                return
        elif live.is_working:
            live.draft = await self._outlet.send(
                channel_id, text, nonce=_digest("draft", *key), reply_to=live.turn
            )
        self._shown[key] = text
        if len(self._shown) > _MAX_KNOWN:
            self._shown.popitem(last=False)

    async def _ask(self, channel_id: int, live: LiveTurn, prompt: LivePrompt) -> None:
        """Post a prompt with something to press; one that has no options stays a text."""
        options = prompt.options
        if prompt.input_type == "binary_choice" and not options:
            options = _YES_NO
        if not 1 <= len(options) <= _MAX_OPTIONS or len(prompt.text) > MAX_CHARACTERS:
            return
        if prompt.input_type in ("text", "notification"):
            return
        digest = _digest("prompt", live.chat_id, prompt.id)
        question = Question(
            chat_id=live.chat_id,
            prompt_id=prompt.id,
            text=prompt.text,
            values=tuple(each.value for each in options),
            labels=tuple(each.label for each in options),
            turn=live.turn,
            user_id=live.inbound.sender_id if live.inbound else "",
        )
        # Before it is posted: nobody may press a button that we do not know.
        self._record.ask(digest, question)
        prompt.external_id = await self._outlet.send(
            channel_id,
            prompt.text or "?",
            nonce=digest,
            reply_to=live.turn,
            view=_view_of(digest, prompt, options),
        )


def _view_of(digest: str, prompt: LivePrompt, options: tuple[Option, ...]) -> discord.ui.View:
    view = discord.ui.View(timeout=None)
    is_menu = prompt.input_type in ("checkbox", "dropdown") or len(options) > _MAX_BUTTONS
    if is_menu:
        choices = [
            discord.SelectOption(
                label=each.label[:_MAX_LABEL] or "-",
                value=str(number),
                description=each.description[:_MAX_LABEL] or None,
            )
            for number, each in enumerate(options)
        ]
        most = len(options) if prompt.input_type == "checkbox" else 1
        view.add_item(
            discord.ui.Select(
                custom_id=f"{CUSTOM_ID}:{digest}",
                options=choices,
                max_values=most,
                placeholder=prompt.placeholder[:_MAX_LABEL] or None,
            )
        )
    else:
        for number, each in enumerate(options):
            name = f"{CUSTOM_ID}:{digest}:{number}"
            view.add_item(discord.ui.Button(label=each.label[:_MAX_LABEL] or "-", custom_id=name))
    view.stop()  # presses are processed by `Presses`, also after a restart
    return view


def _digest(*words: str) -> str:
    return sha256("\0".join(words).encode(errors="replace")).hexdigest()[:24]
