"""Presses: what users choose with the buttons and menus of a prompt is pushed as their answer.

Discord wants to be answered within 3 seconds, and does not keep presses: while the bus is away,
the user is told to press again. The answer to a prompt is one message for the bus, whoever
presses how often.
"""

from __future__ import annotations

import logging
from typing import Any

import anyio
import discord
from anyio.abc import TaskGroup

from busd import Bridge, CallRefused, Refuse
from busd.bridge import Inbound, TooLarge
from busd_plugins.discord.faults import translated
from busd_plugins.discord.reading import may_write
from busd_plugins.discord.record import Question, Record
from busd_plugins.discord.session import BotClient
from busd_plugins.discord.settings import DiscordTable
from busd_plugins.discord.showing import CUSTOM_ID
from busd_plugins.discord.splitting import MAX_CHARACTERS

log = logging.getLogger("busd.discord")

_PUSH_SECONDS = 2.0
_MAX_AT_ONCE = 100
STALE = "This question is no longer open."
NOT_YOURS = "Only the user who was asked can answer this."
LATER = "Your answer was not accepted yet. Please try again in a moment."


class Presses:
    """Answers interactions."""

    tasks: TaskGroup

    def __init__(self, bridge: Bridge, table: DiscordTable, record: Record) -> None:
        self._bridge = bridge
        self._table = table
        self._record = record
        self._count = 0

    def connected(self) -> None:
        """Presses that were missed are lost: Discord has told the user."""

    def guild_seen(self, guild: discord.Guild) -> None:
        """Nothing is to be read."""

    def message_came(self, message: discord.Message, *, is_edit: bool) -> None:
        """Messages are the business of `Lines`."""

    def pressed(self, interaction: discord.Interaction[BotClient]) -> None:
        self._bridge.note_update()
        is_ours = _custom_id(interaction).startswith(f"{CUSTOM_ID}:")
        if is_ours and self._count < _MAX_AT_ONCE:
            self._count += 1
            self.tasks.start_soon(self._answer, interaction)

    async def _answer(self, interaction: discord.Interaction[BotClient]) -> None:
        try:
            with translated():
                await self._take(interaction)
        except Refuse as refusal:
            log.info("a press could not be answered: %s", refusal.reason)
        finally:
            self._count -= 1

    async def _take(self, interaction: discord.Interaction[BotClient]) -> None:
        digest, _, pressed = _custom_id(interaction).removeprefix(f"{CUSTOM_ID}:").partition(":")
        question = self._record.open_question(digest)
        chosen = _chosen(question, pressed, interaction) if question else []
        user = interaction.user
        if question is None or not chosen:
            await _whisper(interaction, STALE)
            return
        if question.user_id not in ("", str(user.id)) or not may_write(self._table, user.id):
            await _whisper(interaction, NOT_YOURS)
            return
        inbound = Inbound(
            chat_id=question.chat_id,
            text="\n".join(question.values[each] for each in chosen),
            sender_id=str(user.id),
            external_id=f"answer-{digest}",
            username=user.name,
            full_name=user.display_name,
            prompt_id=question.prompt_id,
        )
        is_known = False
        try:
            with anyio.move_on_after(_PUSH_SECONDS) as scope:
                is_known = (await self._bridge.push(inbound)).is_duplicate
        except (CallRefused, TooLarge) as refusal:
            self._record.close_question(digest)
            await _whisper(interaction, f"Your answer was not accepted: {refusal}"[:500])
            return
        if scope.cancelled_caught:
            await _whisper(interaction, LATER)
            return
        self._record.close_question(digest)
        labels = ", ".join(question.labels[each] for each in chosen)
        # A press before this one, that was not answered in time, may have chosen something else.
        choice = "(answered)" if is_known else labels
        text = f"{question.text}\n> {choice}"[:MAX_CHARACTERS]
        await interaction.response.edit_message(content=text, view=None)


def _custom_id(interaction: discord.Interaction[BotClient]) -> str:
    data: Any = interaction.data or {}  # as it came from outside
    return str(data.get("custom_id", ""))


def _chosen(
    question: Question, pressed: str, interaction: discord.Interaction[BotClient]
) -> list[int]:
    """Return the numbers of the options; none if they are not those of the question."""
    data: Any = interaction.data or {}  # as it came from outside
    said = [pressed] if pressed else data.get("values", [])
    if not isinstance(said, list):
        return []
    numbers = [int(each) for each in map(str, said) if each.isdecimal() and len(each) < 4]
    is_right = len(numbers) == len(said) and all(each < len(question.values) for each in numbers)
    return numbers if is_right else []


async def _whisper(interaction: discord.Interaction[BotClient], text: str) -> None:
    """Show a text that only the user who pressed sees."""
    none = discord.AllowedMentions.none()
    await interaction.response.send_message(text, ephemeral=True, allowed_mentions=none)
