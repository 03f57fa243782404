"""Settings: each layer has its own, here they are put together, read and explained."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from busd.agent.settings import AgentsSettings, WorkerSettings
from busd.bus.access import Grant, Policy, check_grants
from busd.bus.delivery import DeliveryLimits
from busd.bus.quota import QuotaLimits
from busd.errors import ConfigError
from busd.journal.settings import JournalSettings
from busd.plugin.host import PluginSettings
from busd.settings.bounds import (
    MAX_FILE_BYTES,
    MAX_FILES,
    check_numbers,
    check_shape,
    check_text,
    one_line,
)
from busd.wire.bus_address import parse_bus_address
from busd.wire.connection import MIN_FRAME_BYTES, WireLimits
from busd.wire.places import default_listen, state_directory
from busd.wire.plain_file import read_plain_file
from busd.wire.tls_settings import TlsSettings

Loop = Literal["uvloop", "asyncio", "trio"]
LogLevel = Literal["debug", "info", "warning", "error"]
_ENVIRONMENT, _FLAGS = "environment", "command line"
_LISTS = (
    "listen",
    "allowed_origins",
    "allowed_hosts",
    "plugins.folders",
    "plugins.disabled",
    "agents.channel_types",
)
# Tables of their own, any number of them: only files have those.
_TABLES: dict[str, type[msgspec.Struct]] = {"workers": WorkerSettings, "grant": Grant}
_ONLY_IN_FILES = (*_TABLES, "plugins.settings")


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything an operator can set."""

    listen: list[str] = msgspec.field(default_factory=default_listen)
    state: str = msgspec.field(default_factory=lambda: str(state_directory()))
    loop: Loop = "uvloop"
    policy: Policy = "strict"
    identify_loopback: bool = True
    log_level: LogLevel = "info"
    drain_seconds: float = 10.0
    allowed_origins: list[str] = []
    allowed_hosts: list[str] = []
    wire: WireLimits = WireLimits()
    delivery: DeliveryLimits = DeliveryLimits()
    quota: QuotaLimits = QuotaLimits()
    journal: JournalSettings = JournalSettings()
    tls: TlsSettings = TlsSettings()
    plugins: PluginSettings = PluginSettings()
    agents: AgentsSettings = AgentsSettings()
    workers: dict[str, WorkerSettings] = {}
    grant: list[Grant] = []


def load_settings(path: str | None = None, flags: dict[str, object] | None = None) -> Settings:
    """Return the settings: flag over environment over file over default.

    Raises ConfigError, one line naming the file, the key and what would be right.
    """
    found: dict[str, Any] = {}
    try:
        for source, said in _sources(path, flags or {}):
            _check_shape(said, source)
            # Each by itself first, so that an error names where it is; only files have types.
            _check(_convert(said, source, strict=source not in (_ENVIRONMENT, _FLAGS)), source)
            _merge(found, said)
        settings = _convert(found, "settings", strict=False)
        return msgspec.structs.replace(settings, grant=check_grants(settings.grant))
    except ConfigError as problem:
        raise one_line(problem) from None


def _sources(path: str | None, flags: dict[str, object]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return what each source says, the weakest first."""
    for file in config_files(path):
        yield str(file), _read_toml(file)
    yield _ENVIRONMENT, _read_environment()
    yield _FLAGS, {name: value for name, value in flags.items() if value is not None}


def config_files(path: str | None) -> list[Path]:
    """Return the files that are read, in order: the one said or the default one, and its conf.d."""
    said = path or os.environ.get("BUSD_CONFIG")
    main = Path(said) if said else default_config_file()
    try:
        folder = main.parent / "conf.d"
        extra = sorted(islice(folder.glob("*.toml"), MAX_FILES + 1))
        if len(extra) > MAX_FILES:
            raise ConfigError(f"more than {MAX_FILES} files in {folder}")
        return [main, *extra] if said or main.exists() else extra
    except OSError as problem:
        raise ConfigError(f"cannot look for {main}: {problem.strerror}") from None


def default_config_file() -> Path:
    """Return the file that is read if none is named."""
    if given := os.environ.get("CONFIGURATION_DIRECTORY"):
        return Path(given.split(":")[0]) / "busd.toml"
    if user := os.environ.get("XDG_CONFIG_HOME"):
        return Path(user) / "busd/busd.toml"
    if os.geteuid() == 0:
        return Path("/etc/busd/busd.toml")
    return Path.home() / ".config/busd/busd.toml"


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        text = read_plain_file(path, MAX_FILE_BYTES).decode()
        check_text(text)
        return tomllib.loads(text.replace("\r\n", "\n"))
    except OSError as problem:
        raise ConfigError(f"cannot read {path}: {problem.strerror}") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None
    except (ConfigError, ValueError) as problem:  # no TOML, no UTF-8, or a number of 5,000 digits
        raise ConfigError(f"{path}: {problem}") from None


def _read_environment() -> dict[str, Any]:
    """Return the settings of the environment: BUSD_LOOP=trio, BUSD_WIRE_MAX_FRAME_BYTES=65536."""
    found: dict[str, Any] = {}
    for variable, name in variables().items():
        text = os.environ.get(variable)
        if text is None:
            continue
        place = found
        *groups, key = name.split(".")
        for group in groups:
            place = place.setdefault(group, {})
        place[key] = text.split(",") if name in _LISTS else text
    return found


def variables() -> dict[str, str]:
    """Return each variable of the environment that is a setting, and its dotted name."""
    not_there = {*_ONLY_IN_FILES, *_groups()}  # a group is no setting
    return {
        variable_of(name): name
        for name in setting_names()
        if name not in not_there and name.partition(".")[0] not in _TABLES
    }


def variable_of(name: str) -> str:
    return "BUSD_" + name.replace(".", "_").upper()


def _merge(found: dict[str, Any], said: dict[str, Any]) -> None:
    """Put what a later source says over what earlier ones said; grants add up."""
    for key, value in said.items():
        if isinstance(value, dict) and isinstance(found.get(key), dict):
            _merge(found[key], value)
        elif key == "grant" and isinstance(value, list):
            found[key] = [*found.get(key, []), *value]
        else:
            found[key] = value


def _convert(found: dict[str, Any], source: str, *, strict: bool = True) -> Settings:
    _check_workers(found.get("workers"), source, strict=strict)
    try:
        return msgspec.convert(found, Settings, strict=strict)
    except msgspec.ValidationError as problem:
        raise ConfigError(f"{source}: {_explain(str(problem))}") from None


def _check_workers(tables: object, source: str, *, strict: bool) -> None:
    """Look at each table by itself: of a dict msgspec does not say which one is wrong."""
    for name, table in tables.items() if isinstance(tables, dict) else ():
        try:
            msgspec.convert(table, WorkerSettings, strict=strict)
        except msgspec.ValidationError as problem:
            why = _explain(str(problem), f"workers.{name}")
            raise ConfigError(f"{source}: {why}") from None


def _explain(problem: str, table: str = "") -> str:
    """Put msgspec's words into the operator's: name the key, suggest the one that was meant."""
    where = re.search(r" - at `\$\.?([^`]*)`", problem)
    place = ".".join(part for part in (table, where[1] if where else "") if part)
    said = problem[: where.start()] if where else problem
    unknown = re.search(r"unknown field `(.*)`", said)
    if not unknown:
        choices = _choices(place) if said.startswith("Invalid enum value") else ()
        right = f"; use {', '.join(choices[:-1])} or {choices[-1]}" if choices else ""
        return f"{place}: {said[0].lower()}{said[1:]}{right}"
    key = f"{place}.{unknown[1]}" if place else unknown[1]
    plain = re.sub(r"\[(\d+|\.\.\.)\]", "", key)
    if table:
        plain = f"workers.{unknown[1]}"
    near = difflib.get_close_matches(plain, setting_names(), n=1)
    return f"unknown setting {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def setting_names() -> list[str]:
    """Return every setting by its dotted name."""
    return sorted(_names(Settings, ""))


def _names(kind: type[msgspec.Struct], prefix: str) -> list[str]:
    names: list[str] = []
    for field in msgspec.structs.fields(kind):
        names.append(f"{prefix}{field.name}")
        inner = _TABLES.get(f"{prefix}{field.name}", field.type)
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            names += _names(inner, f"{prefix}{field.name}.")
    return names


def _groups() -> list[str]:
    """Return the names of those settings that are made of others."""
    default = Settings()
    names = (field.name for field in msgspec.structs.fields(Settings))
    return [name for name in names if isinstance(getattr(default, name), msgspec.Struct)]


def _choices(name: str) -> tuple[str, ...]:
    """Return the words that a setting may be; none if it is no word."""
    kind: Any = Settings
    for part in name.split("."):
        if get_origin(kind) is dict:
            kind = get_args(kind)[1]  # the part is a name that the operator chose
            continue
        members = {field.name: field.type for field in msgspec.structs.fields(kind)}
        kind = members.get(part)
        if not isinstance(kind, type) and get_origin(kind) is not dict:
            break
    return get_args(kind)


# What the types cannot say


def _check(settings: Settings, source: str) -> None:
    """Raise ConfigError, naming its source, for what can be read but not be meant."""
    try:
        _check_numbers(settings)
        if settings.wire.max_frame_bytes < MIN_FRAME_BYTES:
            raise ConfigError(f"wire.max_frame_bytes must be {MIN_FRAME_BYTES} or more")
        if settings.quota.unknown_share > 1:
            raise ConfigError("quota.unknown_share must be between 0 and 1")
        if not settings.listen:
            raise ConfigError("listen must name at least one address")
        for address in settings.listen:
            parse_bus_address(address)
        for host in settings.allowed_hosts:
            if not re.fullmatch(r"[\w.-]+", host):
                raise ConfigError(
                    f"allowed_hosts: {host!r} must be a name, without scheme and port"
                )
        check_grants(settings.grant)
        for name, worker in settings.workers.items():
            _check_worker(name, worker)
    except ConfigError as problem:
        raise ConfigError(f"{source}: {problem}") from None


def _check_worker(name: str, worker: WorkerSettings) -> None:
    programs = {"command": worker.command, "agent": worker.agent, "openai_url": worker.openai_url}
    said = [key for key, value in programs.items() if value]
    if len(said) > 1:
        raise ConfigError(f"workers.{name} has {' and '.join(said)}: say only one of them")


def _check_numbers(settings: Settings) -> None:
    groups = {f"{name}.": getattr(settings, name) for name in _groups()}
    grants = {f"grant[{index}].": grant for index, grant in enumerate(settings.grant)}
    workers = {f"workers.{name}.": worker for name, worker in settings.workers.items()}
    for group, values in {"": settings, **groups, **workers, **grants}.items():
        check_numbers(values, group)


def _check_shape(said: dict[str, Any], source: str) -> None:
    try:
        check_shape(said)
    except ConfigError as problem:
        raise ConfigError(f"{source}: {problem}") from None


# What a reload can do


def keep_fixed(old: Settings, new: Settings) -> Settings:
    """Return the new settings, but what a running daemon cannot change as it was."""
    return msgspec.structs.replace(
        new,
        listen=old.listen,
        state=old.state,
        loop=old.loop,
        log_level=old.log_level,
        journal=msgspec.structs.replace(new.journal, enabled=old.journal.enabled),
    )


def changes(old: Settings, new: Settings) -> list[str]:
    """Return the dotted names of the settings in which two sets differ."""
    before, after = _flat(old, ""), _flat(new, "")
    return [name for name in before if before[name] != after[name]]


def _flat(values: msgspec.Struct, prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(values):
        value = getattr(values, field.name)
        if isinstance(value, msgspec.Struct):
            found |= _flat(value, f"{prefix}{field.name}.")
        else:
            found[prefix + field.name] = value
    return found
