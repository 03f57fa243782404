"""The settings of the Discord bridge: the table `[bridges.discord]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec

from busd import ConfigError, DeclaredSettings, Finding
from busd.bridge.settings import BridgeTable, check_bridge_table, find_bridge_doubts
from busd.quantities import Bytes, about

if TYPE_CHECKING:
    from busd import PluginSettings

_KEY = "bridges.discord"
_SCHEMES = {"api_base": ("https://", "http://"), "gateway_url": ("wss://", "ws://")}


class DiscordTable(BridgeTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The Discord bridge."""

    secret_name: ClassVar[str] = "DISCORD_TOKEN"  # noqa: S105 - a name
    packages: ClassVar[dict[str, str]] = {"discord": "discord.py"}
    extra: ClassVar[str] = "discord"

    name: Annotated[str, about("Name of the bridge on the bus.")] = "discord-bridge"
    prefix: Annotated[
        str, about("Prefix of the addresses of its chats; no other bridge may have the same.")
    ] = "discord"
    token_file: Annotated[
        str,
        about("File with the token of the bot; else the credential or variable `DISCORD_TOKEN`."),
    ] = ""
    api_base: Annotated[str, about("Address of Discord's HTTP API, with its version.")] = (
        "https://discord.com/api/v10"
    )
    gateway_url: Annotated[
        str, about("Address of Discord's gateway; empty: the one that the HTTP API names.")
    ] = ""
    allow_users: Annotated[
        list[int], about("Ids of the users who may write to the bot; empty: everybody.")
    ] = msgspec.field(default_factory=list)
    allow_guilds: Annotated[
        list[int], about("Ids of the servers that the bot serves; empty: all it is in.")
    ] = msgspec.field(default_factory=list)
    allow_channels: Annotated[
        list[int], about("Ids of the channels that the bot serves; empty: all it can read.")
    ] = msgspec.field(default_factory=list)
    groups: Annotated[
        Literal["addressed", "all"],
        about("Messages in channels to pass on: those `addressed` to the bot, or `all`."),
    ] = "addressed"
    max_attachment_bytes: Annotated[
        Bytes, about("Largest attachment to pass on; of a larger one only its name is.")
    ] = 25 * 1024 * 1024


class DiscordSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table within `[bridges]` that is Discord's."""

    discord: Annotated[
        DiscordTable | None, about("The Discord bridge; this table starts it with the bus.")
    ] = None


def check(own: DiscordSettings) -> None:
    """Raise ConfigError for what the types cannot express."""
    table = own.discord
    if table is None:
        return
    check_bridge_table(_KEY, table)
    for name, schemes in _SCHEMES.items():
        value = getattr(table, name)
        if value and not value.startswith(schemes):
            raise ConfigError(f"{_KEY}.{name}: {value!r} must begin with {schemes[0]}")


def find_doubts(own: DiscordSettings, limits: PluginSettings) -> Iterator[Finding]:
    """Find what would keep the bridge from starting, and a bot that everybody may use."""
    table = own.discord
    if table is None or not table.enabled:
        return
    yield from find_bridge_doubts(_KEY, table, limits)
    if not (table.allow_users or table.allow_guilds or table.allow_channels):
        words = f"{_KEY}: everybody who shares a server with the bot may talk to your agents"
        fix = f"set {_KEY}.allow_users, {_KEY}.allow_guilds or {_KEY}.allow_channels"
        yield Finding(_KEY, "warning", words, fix)


settings = DeclaredSettings(DiscordSettings, check=check, find_doubts=find_doubts, within="bridges")
