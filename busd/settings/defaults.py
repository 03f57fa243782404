"""Settings as TOML: the default busd.toml, all commented out, and settings as they are.

tomlkit is imported only where something is written: a daemon that starts does not need it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from busd.settings.config import Settings, default_settings
from busd.settings.description import Setting, describe

_HEAD = """\
# The settings of busd. Each line shows a default; remove its # to change it.
# Apply changes with `{reload}`; `busd doctor` reports mistakes.
"""


def encode_default_config(places: dict[str, object], reload: str) -> str:
    """Return the text of the file; `places` are the defaults that depend on whose bus it is."""
    settings = list(describe(msgspec.structs.replace(default_settings(), **places)))
    values = [_lines_of(each) for each in settings if not each.head and not each.table]
    # Tables last: every line after the head of one would belong to it.
    tables = [_table_lines(each, settings) for each in settings if each.head]
    return "\n".join([_HEAD.format(reload=reload), *values, *tables])


def _table_lines(table: Setting, settings: list[Setting]) -> str:
    members = [_lines_of(each) for each in settings if each.table == table.name]
    return f"# {table.about}\n#{table.head}\n{''.join(members)}"


def _lines_of(setting: Setting) -> str:
    key = setting.name.removeprefix(f"{setting.table}.") if setting.table else setting.name
    is_set = setting.default is not None
    value = f" {encode_value(setting.default)}" if is_set else "     # not set"
    return f"# {setting.about}\n#{key} ={value}\n"


def encode_value(value: object) -> str:
    """Return a value as it is written after a key."""
    import tomlkit

    if isinstance(value, dict):
        table = tomlkit.inline_table()
        table.update(value)
        return table.as_string()
    plain = list(value) if isinstance(value, tuple) else value
    return tomlkit.item(plain).as_string()


def encode_settings(settings: Settings) -> str:
    """Return a file that says the same as these settings."""
    import tomlkit

    return tomlkit.dumps(_without_none(msgspec.to_builtins(settings)))


def _without_none(value: Any) -> Any:
    """Return plain data without what is not set, which TOML cannot express."""
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return [_without_none(each) for each in value] if isinstance(value, list) else value
