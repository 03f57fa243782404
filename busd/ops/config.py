"""Settings: each layer has its own, here they are put together and read from a TOML file."""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from busd.bus.bus import Policy
from busd.bus.delivery import DeliveryLimits
from busd.errors import ConfigError
from busd.wire.connection import WireLimits
from busd.wire.places import default_listen, state_directory

Loop = Literal["uvloop", "asyncio", "trio"]
LogLevel = Literal["debug", "info", "warning", "error"]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything an operator can set."""

    listen: list[str] = msgspec.field(default_factory=default_listen)
    state: str = msgspec.field(default_factory=lambda: str(state_directory()))
    loop: Loop = "uvloop"
    policy: Policy = "open"
    log_level: LogLevel = "info"
    drain_seconds: float = 10.0
    allowed_origins: list[str] = []
    wire: WireLimits = WireLimits()
    delivery: DeliveryLimits = DeliveryLimits()


def load_settings(path: str | None, flags: dict[str, object]) -> Settings:
    """Read the settings of a file, with flags on top; raises ConfigError naming what is wrong."""
    found = _read_toml(path) if path else {}
    found.update({name: value for name, value in flags.items() if value is not None})
    try:
        settings = msgspec.convert(found, Settings)
    except msgspec.ValidationError as problem:
        raise ConfigError(f"{path or 'command line'}: {_explain(str(problem))}") from None
    _check_positive(settings)
    if not settings.listen:
        raise ConfigError("listen must name at least one address")
    return settings


def _read_toml(path: str) -> dict[str, object]:
    try:
        return tomllib.loads(Path(path).read_text())
    except OSError as problem:
        raise ConfigError(f"cannot read {path}: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path}: {problem}") from None


def _explain(problem: str) -> str:
    """Put msgspec's words into the operator's: name the key, suggest the one that was meant."""
    where = re.search(r" - at `\$\.?([^`]*)`", problem)
    place = where[1] if where else ""
    said = problem[: where.start()] if where else problem
    unknown = re.search(r"unknown field `(.*)`", said)
    if not unknown:
        return f"{place}: {said[0].lower()}{said[1:]}"
    key = f"{place}.{unknown[1]}" if place else unknown[1]
    near = difflib.get_close_matches(key, setting_names(), n=1)
    return f"unknown setting {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def setting_names() -> list[str]:
    """Give every setting by its dotted name."""
    return sorted(_names(Settings, ""))


def _names(kind: type[msgspec.Struct], prefix: str) -> list[str]:
    names: list[str] = []
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            names += [f"{prefix}{field.name}", *_names(field.type, f"{prefix}{field.name}.")]
        else:
            names.append(f"{prefix}{field.name}")
    return names


def _check_positive(settings: Settings) -> None:
    """A limit of nothing, or a negative time, is a mistake, never a wish."""
    for group, values in (
        ("", settings),
        ("wire.", settings.wire),
        ("delivery.", settings.delivery),
    ):
        for field in msgspec.structs.fields(values):
            value = getattr(values, field.name)
            if isinstance(value, int | float) and not isinstance(value, bool) and not value > 0:
                raise ConfigError(f"{group}{field.name} must be more than 0, not {value}")
