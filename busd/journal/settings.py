"""The settings of the activity log."""

from __future__ import annotations

from typing import Literal

import msgspec


class JournalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the activity log keeps, how much of it, and for how long."""

    enabled: bool = True
    payload: Literal["full", "head", "off"] = "off"  # what people write is theirs
    head_bytes: int = 512
    keep_days: float = 30.0
    max_bytes: int = 1024 * 1024 * 1024  # of the database file
    max_backlog_rows: int = 100_000  # deliveries waiting to be written
    max_backlog_bytes: int = 64 * 1024 * 1024  # of their payloads, if payload is full
    write_seconds: float = 0.1
