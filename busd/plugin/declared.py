"""The settings that bundled plugins declare: tables of their own in the daemon's settings file.

A plugin declares them in its module `settings.py`, which is imported alone, without the rest of the
plugin: settings are checked and described where no plugin runs, and before the daemon starts one.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from busd.errors import ConfigError
from busd.finding import Finding
from busd.plugin.loader import PACKAGE, bundled_folder

if TYPE_CHECKING:
    from busd.plugin.host import PluginSettings

S = TypeVar("S", bound=msgspec.Struct)


def _serve_nothing(settings: object) -> bool:
    return False


def _accept(own: object) -> None:
    pass


def _doubt_nothing(own: object, limits: object) -> Iterable[Finding]:
    return ()


class DeclaredSettings(Generic[S]):
    """The object called `settings` in the module `settings.py` of a bundled plugin.

    Each field of the struct `kind` is a table of the settings file and needs a default. `check`
    raises ConfigError for what the types cannot express. `find_doubts` returns likely mistakes,
    which do not prevent a start; its second parameter is the table `[plugins]`. With `within` the
    fields are tables within a table that another plugin declares: `telegram` within `bridges`.
    `serves_http` gets all settings and returns whether the gateway shall serve what the plugin has
    registered with `@plugin.mounts`.
    """

    def __init__(
        self,
        kind: type[S],
        *,
        check: Callable[[S], None] = _accept,
        find_doubts: Callable[[S, PluginSettings], Iterable[Finding]] = _doubt_nothing,
        within: str = "",
        serves_http: Callable[[Any], bool] = _serve_nothing,
    ) -> None:
        self.kind = kind
        self.check = check
        self.find_doubts = find_doubts
        self.within = within
        self.serves_http = serves_http

    def read(self, settings: object) -> S:
        """Return those settings of a daemon that are declared here."""
        return read_tables(settings, self.kind, self.within)


Declared = DeclaredSettings[Any]  # Any: each plugin has a struct of its own


def read_tables(settings: object, kind: type[S], within: str = "") -> S:
    """Return those settings of a daemon, or of one of its tables, that are fields of `kind`."""
    tables = getattr(settings, within) if within else settings
    return msgspec.convert(tables, kind, from_attributes=True)


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


class _Table(NamedTuple):
    """A field of a struct of settings, and who declares it."""

    name: str
    kind: object
    default: object
    owner: str


def with_tables(base: type[S], declared: dict[str, Declared]) -> type[S]:
    """Return a struct with the fields of `base` and the tables that each plugin declares.

    Raise ConfigError for a table that two of them declare.
    """
    tables = list(_tables_of("", declared))
    for outer in {its.within for its in declared.values() if its.within}:
        place = next(number for number, table in enumerate(tables) if table.name == outer)
        inner = _extended(tables[place].kind, list(_tables_of(outer, declared)), f"{outer}.")
        tables[place] = tables[place]._replace(kind=inner, default=msgspec.field(default=inner()))
    extended: type[S] = _extended(base, tables)
    return extended


def _tables_of(within: str, declared: dict[str, Declared]) -> Iterator[_Table]:
    for plugin, its in declared.items():
        for field in msgspec.structs.fields(its.kind) if its.within == within else ():
            yield _Table(field.name, field.type, _default_of(field), f"the plugin {plugin}")


def _extended(base: Any, tables: list[_Table], prefix: str = "") -> Any:
    """Return a struct type with more fields; Any, because it is made only now."""
    owners = {field.name: "busd" for field in msgspec.structs.fields(base)}
    for table in tables:
        if table.name in owners:
            both = f"{owners[table.name]} and {table.owner}"
            raise ConfigError(f"the table {prefix}{table.name} is declared by {both}")
        owners[table.name] = table.owner
    return msgspec.defstruct(
        base.__name__,
        [(table.name, table.kind, table.default) for table in tables],
        bases=(base,),
        module=base.__module__,
        frozen=True,
        forbid_unknown_fields=True,
    )


def _default_of(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return msgspec.field(default=field.default)
