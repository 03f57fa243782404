"""Configurations that no daemon can use: what to put in the place of a file, and the complaint."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

Put = Callable[[Path], None]  # makes whatever is to lie at a path


def text(content: str) -> Put:
    return lambda path: _write(path, content.encode())


def raw(content: bytes) -> Put:
    return lambda path: _write(path, content)


def link(target: str) -> Put:
    return lambda path: path.symlink_to(target)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


ABSURD: dict[str, tuple[Put, str]] = {
    "an integer over 64 bits": (
        text(f"wire.max_frame_bytes = {2**70}"),
        "wire.max_frame_bytes: a number of more than 64 bits",
    ),
    "an integer of 5,000 digits": (text(f"drain_seconds = {'9' * 5000}"), "digits"),
    "5,000 nested brackets": (text("listen = " + "[" * 5000 + "]" * 5000), "nested too deeply"),
    "5,000 nested tables": (text("x = " + "{a=" * 5000 + "1" + "}" * 5000), "nested too deeply"),
    "a key of 400 parts": (
        text("plugins.settings.x" + ".a" * 400 + " = 1"),
        "plugins: nested more than 32 levels deep",
    ),
    "a key of 100,000 parts": (
        text("plugins.settings.x" + ".a" * 100_000 + " = 1"),
        "more than 500 dots in line 1",
    ),
    "a FIFO": (lambda path: os.mkfifo(path), "it is not a regular file"),
    "a folder": (lambda path: path.mkdir(), "Is a directory"),
    "a device without end": (link("/dev/zero"), "it is not a regular file"),
    "a link to nothing": (link("/nowhere/at/all"), "No such file or directory"),
    "a link to itself": (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    "a large file": (text("# filler\n" * 200_000), "it has more than 1048576 bytes"),
    "NUL in a path": (text('state = "/tmp/a\\u0000b"'), "state: NUL is not allowed"),
    "NUL in an address": (text('listen = ["unix:/tmp/a\\u0000b"]'), "listen: NUL is not allowed"),
    "NUL in a folder": (
        text('plugins.folders = ["/a\\u0000b"]'),
        "plugins.folders: NUL is not allowed",
    ),
    "NUL in a program": (
        text('workers.default.command = ["a\\u0000b"]'),
        "workers.default.command: NUL is not allowed",
    ),
    "NUL bytes": (raw(b"\0" * 100), "Invalid statement"),
    "no UTF-8": (raw(b'state = "\xff"'), "can't decode byte 0xff"),
    "a lone surrogate": (text('state = "\\ud800"'), "not a Unicode scalar value"),
    "a key twice": (text("drain_seconds = 1\ndrain_seconds = 2"), "Cannot overwrite a value"),
    "a date": (
        text("drain_seconds = 2026-01-01"),
        "drain_seconds must be a number, not 2026-01-01",
    ),
    "a newline in a name": (
        text('[workers."a\\nb"]\nturn_seconds = 0'),
        "workers.a\\nb.turn_seconds must be more than 0",
    ),
    "a name of a megabyte": (text('"' + "x" * 1_000_000 + '" = 1'), "unknown setting"),
    "seconds without end": (
        text("journal.write_seconds = 1e300"),
        "journal.write_seconds must be 31622400 (a year) or less, not 1e+300",
    ),
    "days beyond the calendar": (
        text("journal.keep_days = 1e9"),
        "journal.keep_days must be 36525 (a century) or less, not 1000000000.0",
    ),
    "more bytes than there are": (
        text(f"wire.max_queue_bytes = {2**62}"),
        "wire.max_queue_bytes must be 1073741824 (1 GiB) or less",
    ),
    "a log larger than any disk": (
        text(f"journal.max_bytes = {2**62}"),
        "journal.max_bytes must be 1099511627776 (1 TiB) or less",
    ),
    "more peers than there are": (
        text("wire.max_connections = 1_000_000_000"),
        "wire.max_connections must be 10000000 or less",
    ),
    "no number at all": (text("drain_seconds = nan"), "drain_seconds must be more than 0"),
    "a certificate that is a FIFO": (
        lambda path: _fifo_as_certificate(path),
        "it is not a regular file",
    ),
}


def _fifo_as_certificate(path: Path) -> None:
    fifo = path.with_suffix(".pem")
    if not fifo.exists():
        os.mkfifo(fifo)
    path.write_text(f'tls.certificate = "{fifo}"\n')
