"""Explain why data does not fit a struct: which key, which rule, and the wrong value.

msgspec decides whether data fits. Only if it does not, the data is compared with the fields of the
struct, as `msgspec.inspect` describes them, to find the key that an operator has to change.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from busd.errors import ConfigError
from busd.quantities import WORDS

S = TypeVar("S", bound=msgspec.Struct)
_NAMES: dict[type, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "a table",
}
_PLAIN: dict[type, type] = {
    inspect.BoolType: bool,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
}


def convert(said: object, kind: type[S], within: str = "", *, strict: bool = True) -> S:
    """Return data as a struct; raise ConfigError naming the key below `within`, rule and value.

    Without `strict`, text may stand for numbers and booleans, as in the environment.
    """
    try:
        return msgspec.convert(said, kind, strict=strict)
    except msgspec.ValidationError as problem:
        faults = _Faults(kind, within, strict=strict)
        # The kinds that no setting of ours has are explained by msgspec.
        own_words = f"{within}: {problem}" if within else str(problem)
        raise ConfigError(next(faults.find(said), own_words)) from None


def names_within(kind: inspect.Type, prefix: str = "") -> Iterator[str]:
    """Return every setting by its dotted name; tables that may be repeated have no name in it."""
    kind = bare(kind)
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            name = f"{prefix}.{field.encode_name}" if prefix else field.encode_name
            yield name
            yield from names_within(field.type, name)
    elif inner := repeated(kind):
        yield from names_within(inner, prefix)


def bare(kind: inspect.Type) -> inspect.Type:
    """Return a type without its description, and without None."""
    while isinstance(kind, inspect.Metadata | inspect.UnionType):
        if isinstance(kind, inspect.Metadata):
            kind = kind.type
        else:
            kind = next(each for each in kind.types if not isinstance(each, inspect.NoneType))
    return kind


def repeated(kind: inspect.Type) -> inspect.StructType | None:
    """Return the struct of a setting that is a list of tables, or tables by name."""
    inner: inspect.Type | None = None
    if isinstance(kind, inspect.DictType):
        inner = bare(kind.value_type)
    elif isinstance(kind, inspect.ListType):
        inner = bare(kind.item_type)
    return inner if isinstance(inner, inspect.StructType) else None


class _Faults:
    """One comparison of data with a struct.

    `key` is the place in the data (`grant[0].uid`), `name` that of the setting (`grant.uid`).
    """

    def __init__(self, kind: type[msgspec.Struct], within: str, *, strict: bool) -> None:
        self._kind = inspect.type_info(kind)
        self._within = within
        self._strict = strict

    def find(self, said: object) -> Iterator[str]:
        return self._find(said, self._kind, self._within, self._within)

    def _find(self, value: object, kind: inspect.Type, key: str, name: str) -> Iterator[str]:
        plain = bare(kind)
        if isinstance(plain, inspect.StructType):
            yield from self._find_in_struct(value, plain, key, name)
        elif isinstance(plain, inspect.DictType):
            if not isinstance(value, dict):
                yield _must_be(key, _NAMES[dict], value)
                return
            for word, inner in value.items():
                yield from self._find(inner, plain.value_type, f"{key}.{word}", name)
        elif isinstance(plain, inspect.ListType | inspect.VarTupleType):
            if not isinstance(value, list | tuple):
                yield _must_be(key, _NAMES[list], value)
                return
            for index, inner in enumerate(value):
                yield from self._find(inner, plain.item_type, f"{key}[{index}]", name)
        elif isinstance(plain, inspect.LiteralType):
            if value not in plain.values:
                yield _must_be(key, _choice(plain.values), value)
        elif type(plain) in _PLAIN:
            yield from self._find_in_plain(value, kind, key)

    def _find_in_struct(
        self, value: object, kind: inspect.StructType, key: str, name: str
    ) -> Iterator[str]:
        if not isinstance(value, dict):
            yield _must_be(key, _NAMES[dict], value)
            return
        fields = {field.encode_name: field for field in kind.fields}
        for word, inner in value.items():
            inner_key, inner_name = (f"{at}.{word}" if at else word for at in (key, name))
            if word in fields:
                yield from self._find(inner, fields[word].type, inner_key, inner_name)
            elif kind.forbid_unknown_fields:
                yield self._unknown(inner_key, inner_name)
        for word, field in fields.items():
            if field.required and word not in value:
                yield f"{key}.{word} is required" if key else f"{word} is required"

    def _unknown(self, key: str, name: str) -> str:
        known = names_within(self._kind, self._within)
        near = difflib.get_close_matches(name, sorted(known), n=1)
        return f"unknown setting {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")

    def _find_in_plain(self, value: object, kind: inspect.Type, key: str) -> Iterator[str]:
        plain = bare(kind)
        wanted = _PLAIN[type(plain)]
        try:
            value = msgspec.convert(value, wanted, strict=self._strict)
        except msgspec.ValidationError:
            yield _must_be(key, _NAMES[wanted], value)
            return
        if isinstance(plain, inspect.IntType | inspect.FloatType):
            rule = _broken_bound(value, plain, _words_of(kind))
            if rule:
                yield _must_be(key, rule, value)


def _broken_bound(value: Any, kind: inspect.IntType | inspect.FloatType, words: str) -> str:
    """Return the bound that a number is beyond; each is written so that NaN is beyond it."""
    if kind.gt is not None and not value > kind.gt:
        return f"more than {kind.gt}"
    if kind.ge is not None and not value >= kind.ge:
        return f"{kind.ge} or more"
    if kind.le is not None and not value <= kind.le:
        return f"{kind.le} ({words}) or less" if words else f"{kind.le} or less"
    return ""


def _words_of(kind: inspect.Type) -> str:
    """Return the largest value of a number as a person writes it."""
    if isinstance(kind, inspect.Metadata):
        return str((kind.extra or {}).get(WORDS, "")) or _words_of(kind.type)
    if isinstance(kind, inspect.UnionType):
        return next(filter(None, map(_words_of, kind.types)), "")
    return ""


def _choice(values: tuple[object, ...]) -> str:
    *others, last = map(str, values)
    return f"{', '.join(others)} or {last}" if others else last


def _must_be(key: str, rule: str, value: object) -> str:
    return f"{key} must be {rule}, not {_shown(value)}"


def _shown(value: object) -> str:
    if isinstance(value, dict | list | tuple):
        return _NAMES[dict if isinstance(value, dict) else list]
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, str) else str(value)
