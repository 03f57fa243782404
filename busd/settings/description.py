"""Every setting with its name, default and description, as the fields of the structs say it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import inspect

from busd.struct_faults import bare, repeated


class Setting(msgspec.Struct, frozen=True):
    """One setting; a group of settings, such as `wire`, is none."""

    name: str  # dotted; a member of a table that may be repeated: `grant.uid`
    about: str
    default: object  # None if it is not set
    is_list: bool = False
    # tables by names that the operator chooses, or that may be missing, and their members
    is_in_files_only: bool = False
    head: str = ""  # of a table that may be repeated or missing: `[[grant]]`
    table: str = ""  # of a member: the name of that table


def describe(values: msgspec.Struct, prefix: str = "") -> Iterator[Setting]:
    """Return all settings in order, with the given values as defaults."""
    kind = inspect.type_info(type(values))
    assert isinstance(kind, inspect.StructType)
    for field in kind.fields:
        value = getattr(values, field.name)
        name = f"{prefix}{field.encode_name}"
        if isinstance(value, msgspec.Struct):
            yield from describe(value, f"{name}.")
        else:
            yield from _describe(name, field.type, value)


def _describe(name: str, kind: inspect.Type, default: object) -> Iterator[Setting]:
    about, plain = _description_of(kind), bare(kind)
    is_dict = isinstance(plain, inspect.DictType)
    is_table = isinstance(plain, inspect.StructType)  # one that is missing
    table = plain if isinstance(plain, inspect.StructType) else repeated(plain)
    if table is None:
        is_list = isinstance(plain, inspect.ListType)
        yield Setting(name, about, default, is_list=is_list, is_in_files_only=is_dict)
        return
    head = f"[{name}]" if is_table else f"[{name}.default]" if is_dict else f"[[{name}]]"
    yield Setting(name, about, default, is_in_files_only=True, head=head)
    for field in table.fields:
        yield Setting(
            f"{name}.{field.encode_name}",
            _description_of(field.type),
            _default_of(field),
            is_in_files_only=True,
            table=name,
        )


def _description_of(kind: inspect.Type) -> str:
    schema = kind.extra_json_schema if isinstance(kind, inspect.Metadata) else None
    return str((schema or {}).get("description", ""))


def _default_of(field: inspect.Field) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default
