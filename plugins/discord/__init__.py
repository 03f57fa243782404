"""Discord: a bridge to Discord's bots.

MESSAGE_CREATE → `reading` → `Lines` → `bridge.push`; reply → `splitting` → `Outlet.post` → message

It runs in a process of its own. Only that process imports discord.py, when the bridge starts.
"""

from __future__ import annotations

from busd import Bridge, Plugin
from busd_plugins.discord.settings import DiscordTable

plugin = Plugin("discord", version="1.0")


@plugin.bridge
async def serve(bridge: Bridge, table: DiscordTable) -> None:
    """Connect a bot of Discord."""
    from busd_plugins.discord.serving import serve_discord

    await serve_discord(bridge, table)
