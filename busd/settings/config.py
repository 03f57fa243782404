"""Settings: each layer has its own, here they are put together, read and explained."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import msgspec.inspect

from busd.bus.access import Grant, Policy, check_grants
from busd.bus.delivery import DeliveryLimits
from busd.bus.loops import LoopLimits
from busd.bus.mail_policy import MailSettings, check_mail_settings, keep_store_limits
from busd.bus.quota import QuotaLimits
from busd.errors import ConfigError
from busd.journal.settings import JournalSettings
from busd.plugin.declared import bundled_settings, with_tables
from busd.plugin.host import PluginSettings
from busd.quantities import Seconds, about
from busd.settings.bounds import (
    MAX_FILE_BYTES,
    MAX_FILES,
    check_shape,
    check_text,
    one_line,
)
from busd.settings.description import Setting, describe
from busd.struct_faults import convert, names_within
from busd.wire.bus_address import parse_bus_address
from busd.wire.connection import WireLimits
from busd.wire.places import default_listen, state_directory
from busd.wire.plain_file import read_plain_file
from busd.wire.tls_settings import TlsSettings

Loop = Literal["uvloop", "asyncio", "trio"]
LogLevel = Literal["debug", "info", "warning", "error"]
_ENVIRONMENT, _FLAGS = "environment", "command line"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything an operator can set, except the tables that plugins declare."""

    listen: Annotated[list[str], about("Addresses to listen on.")] = msgspec.field(
        default_factory=default_listen
    )
    state: Annotated[str, about("Folder for files that outlive a restart; one per daemon.")] = (
        msgspec.field(default_factory=lambda: str(state_directory()))
    )
    loop: Annotated[Loop, about("Event loop: `uvloop`, `asyncio` or `trio`.")] = "uvloop"
    policy: Annotated[
        Policy,
        about("`strict`: only what grants allow; `open`: everybody on this host, under any name."),
    ] = "strict"
    identify_loopback: Annotated[
        bool, about("Identify loopback TCP connections by the kernel, without a token.")
    ] = True
    log_level: Annotated[
        LogLevel, about("Least severe log entries: `debug`, `info`, `warning` or `error`.")
    ] = "info"
    drain_seconds: Annotated[
        Seconds, about("Time that a stopping bus waits for outstanding acks.")
    ] = 10.0
    allowed_origins: Annotated[list[str], about("Web sites whose pages may connect.")] = []
    allowed_hosts: Annotated[
        list[str], about("Additional names of this host, for `/metrics` and the health pages.")
    ] = []
    wire: WireLimits = WireLimits()
    delivery: DeliveryLimits = DeliveryLimits()
    quota: QuotaLimits = QuotaLimits()
    mail: MailSettings = MailSettings()
    loops: LoopLimits = LoopLimits()
    journal: JournalSettings = JournalSettings()
    tls: TlsSettings = TlsSettings()
    plugins: PluginSettings = PluginSettings()
    grant: Annotated[
        list[Grant],
        about("What a uid, systemd unit, token or certificate may do; any number of tables."),
    ] = []


@cache
def settings_kind() -> type[Settings]:
    """Return the struct of all settings, with the tables that bundled plugins declare."""
    return with_tables(Settings, bundled_settings())


def default_settings() -> Settings:
    """Return all settings as they are if nobody sets any."""
    return settings_kind()()


def load_settings(path: str | None = None, flags: dict[str, object] | None = None) -> Settings:
    """Return the settings: flag over environment over file over default.

    Raises ConfigError, one line naming the file, the key and what would be right.
    """
    found: dict[str, Any] = {}
    try:
        for source, said in _sources(path, flags or {}):
            # Each by itself first, so that an error names where it is; only files have types.
            _check(said, source, strict=source not in (_ENVIRONMENT, _FLAGS))
            _merge(found, said)
        settings = convert(found, settings_kind(), strict=False)
        settings = msgspec.structs.replace(settings, grant=check_grants(settings.grant))
        return _with_absolute_folders(settings)
    except ConfigError as problem:
        raise one_line(problem) from None


def _with_absolute_folders(settings: Settings) -> Settings:
    """Return the settings so that they mean the same to processes that run in another folder."""
    folders = [
        each if each.startswith("~") else _absolute(each) for each in settings.plugins.folders
    ]
    plugins = msgspec.structs.replace(settings.plugins, folders=folders)
    return msgspec.structs.replace(settings, state=_absolute(settings.state), plugins=plugins)


def _absolute(folder: str) -> str:
    try:
        return str(Path(folder).absolute())
    except FileNotFoundError:
        raise ConfigError(f"cannot find {folder!r}: the current folder is gone") from None


def read_settings(file: str) -> Settings:
    """Return the settings that a daemon has written for a process that it starts."""
    try:
        return msgspec.json.decode(
            read_plain_file(Path(file), MAX_FILE_BYTES), type=settings_kind()
        )
    except OSError as problem:
        raise ConfigError(f"cannot read {file}: {problem.strerror}") from None
    except msgspec.MsgspecError as problem:
        raise ConfigError(f"{file}: {problem}") from None


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
    for variable, setting in variables().items():
        text = os.environ.get(variable)
        if text is None:
            continue
        place = found
        *groups, key = setting.name.split(".")
        for group in groups:
            place = place.setdefault(group, {})
        place[key] = text.split(",") if setting.is_list else text
    return found


def variables() -> dict[str, Setting]:
    """Return the setting of each variable of the environment that is one."""
    settings = describe(default_settings())
    return {variable_of(each.name): each for each in settings if not each.is_in_files_only}


def variable_of(name: str) -> str:
    return "BUSD_" + name.replace(".", "_").upper()


def _merge(found: dict[str, Any], said: dict[str, Any]) -> None:
    """Merge a later source into earlier ones: its values win, grants add up."""
    for key, value in said.items():
        if isinstance(value, dict) and isinstance(found.get(key), dict):
            _merge(found[key], value)
        elif key == "grant" and isinstance(value, list):
            found[key] = [*found.get(key, []), *value]
        else:
            found[key] = value


def setting_names() -> list[str]:
    """Return every setting, and every group of settings, by its dotted name."""
    return sorted(names_within(msgspec.inspect.type_info(settings_kind())))


# What the types cannot say


def _check(said: dict[str, Any], source: str, *, strict: bool) -> None:
    """Raise ConfigError, naming its source, for what cannot be read or not be meant."""
    try:
        check_shape(said)
        _check_meaning(convert(said, settings_kind(), strict=strict))
    except ConfigError as problem:
        raise ConfigError(f"{source}: {problem}") from None


def _check_meaning(settings: Settings) -> None:
    if not settings.listen:
        raise ConfigError("listen must name at least one address")
    for address in settings.listen:
        parse_bus_address(address)
    for host in settings.allowed_hosts:
        if not re.fullmatch(r"[\w.-]+", host):
            raise ConfigError(f"allowed_hosts: {host!r} must be a name, without scheme and port")
    check_grants(settings.grant)
    check_mail_settings(settings.mail)
    for declared in bundled_settings().values():
        declared.check(declared.read(settings))


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
        mail=keep_store_limits(old.mail, new.mail),
    )


def changes(old: Settings, new: Settings) -> list[str]:
    """Return the dotted names of the settings in which two sets differ."""
    before, after = _flat(old, ""), _flat(new, "")
    return [name for name in before if before[name] != after[name]]


def _flat(values: msgspec.Struct, prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(values):
        value = getattr(values, field.name)
        # A table that may be missing is one value: it has no members while it is.
        if isinstance(value, msgspec.Struct) and field.default is not None:
            found |= _flat(value, f"{prefix}{field.name}.")
        else:
            found[prefix + field.name] = value
    return found
