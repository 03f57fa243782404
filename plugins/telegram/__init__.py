"""Telegram: connect the chats of a bot to the bus.

The bridge runs in a process of its own; only there is aiogram imported.
"""

from __future__ import annotations

from busd import Bridge, Plugin
from busd_plugins.telegram.settings import TelegramTable

plugin = Plugin("telegram", version="1.0")


@plugin.bridge
async def serve(bridge: Bridge, table: TelegramTable) -> None:
    """Connect the chats of the bot whose token the table names."""
    from busd_plugins.telegram.telegram import Telegram

    await Telegram(bridge, table).serve()
