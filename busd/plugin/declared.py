"""The settings that bundled plugins declare: tables of their own in the daemon's settings file.

A plugin declares them in its module `settings.py`, which is imported alone, without the rest of the
plugin: settings are checked and described where no plugin runs, and before the daemon starts one.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from busd.errors import ConfigError
from busd.finding import Finding
from busd.plugin.loader import PACKAGE, bundled_folder

if TYPE_CHECKING:
    from busd.plugin.host import PluginSettings

S = TypeVar("S", bound=msgspec.Struct)


def _accept(own: object) -> None:
    pass


def _doubt_nothing(own: object, limits: object) -> Iterable[Finding]:
    return ()


class DeclaredSettings(Generic[S]):
    """The object called `settings` in the module `settings.py` of a bundled plugin.

    Each field of the struct `kind` is a table of the settings file and needs a default. `check`
    raises ConfigError for what the types cannot express. `find_doubts` returns likely mistakes,
    which do not prevent a start; its second parameter is the table `[plugins]`.
    """

    def __init__(
        self,
        kind: type[S],
        *,
        check: Callable[[S], None] = _accept,
        find_doubts: Callable[[S, PluginSettings], Iterable[Finding]] = _doubt_nothing,
    ) -> None:
        self.kind = kind
        self.check = check
        self.find_doubts = find_doubts


Declared = DeclaredSettings[Any]  # Any: each plugin has a struct of its own


def read_tables(settings: object, kind: type[S]) -> S:
    """Return those settings of a daemon that are fields of `kind`."""
    return msgspec.convert(settings, kind, from_attributes=True)


@cache
def bundled_settings() -> dict[str, Declared]:
    """Return what the bundled plugins declare, by the plugin's name, disabled or not."""
    files = sorted(bundled_folder().glob("*/settings.py"))
    return {file.parent.name: _import(file) for file in files}


def _import(file: Path) -> Declared:
    """Import a module `settings.py`; the plugin uses it later, so its structs exist once."""
    name = f"{PACKAGE}.{file.parent.name}.settings"
    module = sys.modules.get(name)
    if module is None:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None  # it is a file of Python's
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    declared: Declared = module.settings
    return declared


def with_tables(base: type[S], declared: dict[str, Declared]) -> type[S]:
    """Return a struct with the fields of `base` and the tables that each plugin declares.

    Raise ConfigError for a table that two of them declare.
    """
    owners = {field.name: "busd" for field in msgspec.structs.fields(base)}
    added = []
    for plugin, its in declared.items():
        for field in msgspec.structs.fields(its.kind):
            if field.name in owners:
                both = f"{owners[field.name]} and the plugin {plugin}"
                raise ConfigError(f"the table {field.name} is declared by {both}")
            owners[field.name] = f"the plugin {plugin}"
            added.append((field.name, field.type, _default_of(field)))
    return msgspec.defstruct(
        base.__name__,
        added,
        bases=(base,),
        module=base.__module__,
        frozen=True,
        forbid_unknown_fields=True,
    )  # type: ignore[return-value]  # typed as any struct, not as one of its base


def _default_of(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return msgspec.field(default=field.default)
