"""The settings of the webhook bridge: the table `[bridges.hook]`; the gateway serves it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from busd import ConfigError, DeclaredSettings, Finding
from busd.bridge.settings import check_absolute, check_bridge_name, find_file_doubts
from busd.quantities import MemoryBytes, Seconds, about

if TYPE_CHECKING:
    from busd import PluginSettings

_KEY = "bridges.hook"


class HookTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The webhook bridge."""

    enabled: Annotated[bool, about("Serve webhooks; needs `gateway.enabled`.")] = True
    name: Annotated[str, about("Name of the bridge on the bus.")] = "hook-bridge"
    path: Annotated[str, about("Path of the gateway that messages are posted to.")] = "/hook"
    secrets: Annotated[
        dict[str, str], about("Names of callers that sign, and the files of their secrets.")
    ] = {}
    tokens: Annotated[
        dict[str, str], about("Names of callers with a bearer token, and the files of these.")
    ] = {}
    window_seconds: Annotated[
        Seconds, about("Greatest age of a signed request; older ones are refused.")
    ] = 300.0
    wait_seconds: Annotated[
        Seconds, about("Longest time that a caller may wait for the answer.")
    ] = 60.0
    callback_seconds: Annotated[
        Seconds, about("Time for which an answer is offered to a callback URL that fails.")
    ] = 3_600.0
    allow_private_callbacks: Annotated[
        bool, about("Allow callback URLs of this host and of private networks.")
    ] = False
    max_body_bytes: Annotated[MemoryBytes, about("Largest request.")] = 1024 * 1024


class HookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table within `[bridges]` that is the webhook's."""

    hook: Annotated[
        HookTable | None, about("The webhook bridge; this table makes the gateway serve it.")
    ] = None


def check(own: HookSettings) -> None:
    """Raise ConfigError for what the types cannot express."""
    table = own.hook
    if table is None:
        return
    check_bridge_name(_KEY, table.name)
    if not re.fullmatch(r"(/[\w.-]+)+", table.path):
        raise ConfigError(f"{_KEY}.path: {table.path!r} must be like /hook")
    for group, files in (("secrets", table.secrets), ("tokens", table.tokens)):
        for name, file in files.items():
            if not re.fullmatch(r"[A-Za-z0-9][\w-]{0,31}", name):
                raise ConfigError(f"{_KEY}.{group}: {name!r} cannot be a name; choose a word")
            check_absolute(f"{_KEY}.{group}.{name}", file)


def find_doubts(own: HookSettings, limits: PluginSettings) -> Iterator[Finding]:
    """Find callers that could not be recognized."""
    table = own.hook
    if table is None or not table.enabled:
        return
    for group, files in (("secrets", table.secrets), ("tokens", table.tokens)):
        for name, file in files.items():
            yield from find_file_doubts(f"{_KEY}.{group}.{name}", Path(file))
    if not table.secrets and not table.tokens:
        words = f"{_KEY} refuses every message: it knows no caller"
        yield Finding(_KEY, "warning", words, f"set {_KEY}.secrets or {_KEY}.tokens")


def serves_http(settings: Any) -> bool:
    """Return whether the gateway has something to serve: webhooks, or updates for Telegram."""
    hook, telegram = settings.bridges.hook, settings.bridges.telegram
    has_telegram = telegram is not None and telegram.mode == "webhook"
    return has_telegram or (hook is not None and hook.enabled)


settings = DeclaredSettings(
    HookSettings,
    check=check,
    find_doubts=find_doubts,
    within="bridges",
    serves_http=serves_http,
)
