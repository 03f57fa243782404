"""The kinds of number that settings are made of, each with its bounds.

A setting is described once, on its field: `Annotated[Seconds, about("Time to answer.")]`. From this
follow its check, the table in docs/settings.md, the commented busd.toml and the help of options.

The largest values are far beyond any use. They keep what the daemon computes from a setting within
what clocks, SQLite and the event loops can represent.

This module is public: plugins declare their settings with it.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

__all__ = [
    "Bytes",
    "Count",
    "CountOrZero",
    "Days",
    "MemoryBytes",
    "Percent",
    "Rate",
    "Seconds",
    "SecondsOrZero",
    "Share",
    "Uid",
    "about",
]

WORDS = "words"  # key in `Meta.extra`: the largest value as a person writes it

Seconds = Annotated[float, Meta(gt=0, le=366 * 86_400, extra={WORDS: "a year"})]
SecondsOrZero = Annotated[float, Meta(ge=0, le=366 * 86_400, extra={WORDS: "a year"})]
Days = Annotated[float, Meta(gt=0, le=36_525, extra={WORDS: "a century"})]
Bytes = Annotated[int, Meta(gt=0, le=2**40, extra={WORDS: "1 TiB"})]
# What peers may fill: uvloop's buffers are counted by 31 bits.
MemoryBytes = Annotated[int, Meta(gt=0, le=2**30, extra={WORDS: "1 GiB"})]
Percent = Annotated[int, Meta(gt=0, le=100_000, extra={WORDS: "1000 cores"})]
Count = Annotated[int, Meta(gt=0, le=10_000_000)]
CountOrZero = Annotated[int, Meta(ge=0, le=10_000_000)]
Rate = Annotated[float, Meta(gt=0, le=10_000_000)]  # per second
Share = Annotated[float, Meta(gt=0, le=1)]
Uid = Annotated[int, Meta(ge=0, le=2**32 - 2)]


def about(description: str) -> Meta:
    """Return the description of a setting: one or two short sentences, Markdown."""
    return Meta(description=description)
