"""What commands print: nothing that a peer wrote can steer the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click


def printable(text: str, keep: str = "\n\t") -> str:
    """Replace control characters of received text, which could control the terminal."""
    return "".join(c if c.isprintable() or c in keep else "\ufffd" for c in text)


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(printable("  ".join(cells).rstrip(), keep=""))


def print_json(value: object) -> None:
    click.echo(harmless_json(value))
    sys.stdout.flush()


def harmless_json(value: object) -> str:
    """Return one line of JSON without characters that could control the terminal."""
    import json

    import msgspec

    text = msgspec.json.encode(value).decode()
    if text.isprintable():
        return text
    # What separates words becomes a space; everything else stands in a string and is escaped.
    return "".join(
        c if c.isprintable() else " " if c in "\n\r\t" else json.dumps(c)[1:-1] for c in text
    )
