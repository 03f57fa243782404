"""The bounds of all settings: how large a number, a file and its nesting may be.

The largest values are far beyond any use. They keep what the daemon computes from a setting within
what clocks, SQLite and the event loops can represent.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from busd.errors import ConfigError

MAX_FILE_BYTES = 1024 * 1024
MAX_FILES = 1_000
_MAX_DEPTH = 32  # of tables and arrays within each other
_MAX_DOTS = 500  # in a line: the time to parse a dotted key grows with the square of its parts
_MAX_ERROR_CHARACTERS = 500
_MAX_INTEGER, _MIN_INTEGER = 2**63 - 1, -(2**63)

_MAY_BE_ZERO = ("uid", "restarts", "idle_seconds")  # root; none; never
_IN_MEMORY = ("wire.", "delivery.", "grant[")  # what peers may fill
# By how the name of a setting ends, and what the limit is called; the last one is for counts.
_LARGEST: tuple[tuple[str, int, str], ...] = (
    ("_seconds", 366 * 86_400, "31622400 (a year)"),
    ("_days", 36_525, "36525 (a century)"),
    ("_bytes", 2**40, "1099511627776 (1 TiB)"),
    ("_percent", 100_000, "100000 (1000 cores)"),
    ("uid", 2**32 - 2, "4294967294"),
    ("", 10_000_000, "10000000"),
)


def largest(group: str, name: str) -> tuple[int, str]:
    """Return the largest value that a setting may have, and how to write it."""
    if name.endswith("_bytes") and group.startswith(_IN_MEMORY):
        return 2**30, "1073741824 (1 GiB)"  # uvloop's buffers are counted by 31 bits
    return next((number, words) for end, number, words in _LARGEST if name.endswith(end))


def check_numbers(values: msgspec.Struct, group: str) -> None:
    """Raise ConfigError for a limit of nothing, a time without end, or a number out of bounds."""
    for field in msgspec.structs.fields(values):
        value = getattr(values, field.name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or (value == 0 and field.name in _MAY_BE_ZERO):
            continue
        if not value > 0:
            raise ConfigError(f"{group}{field.name} must be more than 0, not {value}")
        if math.isinf(value):
            raise ConfigError(f"{group}{field.name} must be a number, not {value}")
        limit, words = largest(group, field.name)
        if value > limit:
            raise ConfigError(f"{group}{field.name} must be {words} or less, not {value}")


def check_text(text: str) -> None:
    """Raise ConfigError for TOML that would take too long to parse."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > _MAX_DOTS:
            raise ConfigError(f"more than {_MAX_DOTS} dots in line {number}")


def check_shape(said: dict[str, Any]) -> None:
    """Raise ConfigError for what no setting can be, wherever it is: too deep, too large, no text.

    Not recursive: a dotted key makes a table deeper than Python can follow.
    """
    waiting: list[tuple[object, str, int]] = [(said, "", 0)]
    while waiting:
        value, name, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            raise ConfigError(
                f"{name.partition('.')[0]}: nested more than {_MAX_DEPTH} levels deep"
            )
        if isinstance(value, dict):
            for key, inner in value.items():
                _check_string(key, name or "a key")
                waiting.append((inner, f"{name}.{key}" if name else key, depth + 1))
        elif isinstance(value, list | tuple):
            waiting += [(inner, name, depth + 1) for inner in value]
        elif isinstance(value, str):
            _check_string(value, name)
        elif isinstance(value, int) and not _MIN_INTEGER <= value <= _MAX_INTEGER:
            raise ConfigError(f"{name}: a number of more than 64 bits")


def _check_string(text: str, name: str) -> None:
    if "\0" in text:
        raise ConfigError(f"{name}: NUL is not allowed")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:  # from the environment or the command line
            raise ConfigError(f"{name}: not UTF-8") from None


def one_line(problem: ConfigError) -> ConfigError:
    """Return the error with a text that is one line of bounded length, whatever it quotes."""
    text = str(problem).encode(errors="replace").decode()
    plain = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    if len(plain) > _MAX_ERROR_CHARACTERS:
        plain = f"{plain[: _MAX_ERROR_CHARACTERS // 2]} … {plain[-_MAX_ERROR_CHARACTERS // 2 :]}"
    return ConfigError(plain)
