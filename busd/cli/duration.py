"""Durations on the command line: 30s, 10m, 1h, 7d."""

from __future__ import annotations

import re

import click

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MAX_SECONDS = 1e10  # more is a mistake


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration; None if the text is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text, re.ASCII)
    return float(found[1]) * _UNITS[found[2]] if found else None


def duration(text: str) -> float:
    """Return the seconds of an option that is a duration of more than nothing."""
    seconds = parse_duration(text)
    if seconds is None:
        raise click.BadParameter(f"{text!r} is no duration: write 30s, 10m, 1h or 7d")
    if not 0 < seconds < _MAX_SECONDS:
        raise click.BadParameter(f"{text!r} is too {'long' if seconds else 'short'}")
    return seconds
