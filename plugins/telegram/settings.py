"""The settings of the Telegram bridge: the table `[bridges.telegram]`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec

from busd import ConfigError, DeclaredSettings, Finding
from busd.bridge.settings import (
    BridgeTable,
    check_absolute,
    check_bridge_table,
    find_bridge_doubts,
    find_file_doubts,
)
from busd.quantities import Bytes, about

if TYPE_CHECKING:
    from busd import PluginSettings

_KEY = "bridges.telegram"


class TelegramTable(BridgeTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The Telegram bridge."""

    secret_name: ClassVar[str] = "TELEGRAM_TOKEN"  # noqa: S105 - a name
    packages: ClassVar[dict[str, str]] = {"aiogram": "aiogram"}
    extra: ClassVar[str] = "telegram"

    name: Annotated[str, about("Name of the bridge on the bus.")] = "telegram-bridge"
    prefix: Annotated[
        str, about("Prefix of the addresses of its chats; no other bridge may have the same.")
    ] = "tg"
    token_file: Annotated[
        str,
        about("File with the token of the bot; else the credential or variable `TELEGRAM_TOKEN`."),
    ] = ""
    api_base: Annotated[str, about("Address of the Bot API server.")] = "https://api.telegram.org"
    mode: Annotated[
        Literal["polling", "webhook"],
        about("How updates come: `polling`, or `webhook` through the gateway."),
    ] = "polling"
    webhook_url: Annotated[
        str, about("Public address at which Telegram reaches the gateway, for `webhook`.")
    ] = ""
    webhook_secret_file: Annotated[
        str,
        about(
            "File with the secret that Telegram sends to the gateway; "
            "else the credential or variable `TELEGRAM_WEBHOOK_SECRET`."
        ),
    ] = ""
    allow_users: Annotated[
        list[int], about("Ids of the users who may write to the bot; empty: everybody.")
    ] = msgspec.field(default_factory=list)
    allow_chats: Annotated[
        list[int],
        about("Ids of the groups, or private chats, that the bot serves; empty: all it is in."),
    ] = msgspec.field(default_factory=list)
    groups: Annotated[
        Literal["addressed", "all"],
        about("Messages in groups to pass on: those `addressed` to the bot, or `all`."),
    ] = "addressed"
    max_attachment_bytes: Annotated[
        Bytes, about("Largest attachment to pass on; of a larger one only its name is.")
    ] = 640 * 1024


class TelegramSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table within `[bridges]` that is Telegram's."""

    telegram: Annotated[
        TelegramTable | None, about("The Telegram bridge; this table starts it with the bus.")
    ] = None


def check(own: TelegramSettings) -> None:
    """Raise ConfigError for what the types cannot express."""
    table = own.telegram
    if table is None:
        return
    check_bridge_table(_KEY, table)
    if not table.api_base.startswith(("https://", "http://")):
        raise ConfigError(f"{_KEY}.api_base: {table.api_base!r} must begin with https://")
    if table.mode == "webhook" and not table.webhook_url.startswith("https://"):
        raise ConfigError(f'{_KEY}.webhook_url must begin with https:// if mode is "webhook"')
    check_absolute(f"{_KEY}.webhook_secret_file", table.webhook_secret_file)


def find_doubts(own: TelegramSettings, limits: PluginSettings) -> Iterator[Finding]:
    """Find what would keep the bridge from starting, and a bot that everybody may use."""
    table = own.telegram
    if table is None or not table.enabled:
        return
    yield from find_bridge_doubts(_KEY, table, limits)
    if table.webhook_secret_file:
        yield from find_file_doubts(f"{_KEY}.webhook_secret_file", Path(table.webhook_secret_file))
    if not table.allow_users and not table.allow_chats:
        words = f"{_KEY}: everybody on Telegram who finds the bot may talk to your agents"
        fix = f"set {_KEY}.allow_users or {_KEY}.allow_chats"
        yield Finding(_KEY, "warning", words, fix)


settings = DeclaredSettings(
    TelegramSettings, check=check, find_doubts=find_doubts, within="bridges"
)
