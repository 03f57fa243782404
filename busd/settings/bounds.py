"""The bounds of a settings file as a whole: its size, its nesting, its strings."""

from __future__ import annotations

from typing import Any

from busd.errors import ConfigError

MAX_FILE_BYTES = 1024 * 1024
MAX_FILES = 1_000
_MAX_DEPTH = 32  # of tables and arrays within each other
_MAX_DOTS = 500  # in a line: the time to parse a dotted key grows with the square of its parts
_MAX_ERROR_CHARACTERS = 500
_MAX_INTEGER, _MIN_INTEGER = 2**63 - 1, -(2**63)


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
