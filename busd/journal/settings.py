"""The settings of the activity log."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from busd.quantities import Bytes, Count, Days, Seconds, about


class JournalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the activity log keeps, how much of it, and for how long.

    By default it keeps no payloads: what people write is private.
    """

    enabled: Annotated[bool, about("Keep an activity log of all messages.")] = True
    payload: Annotated[
        Literal["full", "head", "off"],
        about("How much of a payload is logged: `full`, `head` or `off`."),
    ] = "off"
    head_bytes: Annotated[Bytes, about("Length of a head.")] = 512
    keep_days: Annotated[Days, about("How long deliveries are kept.")] = 30.0
    max_bytes: Annotated[Bytes, about("Largest size of the database file.")] = 1024 * 1024 * 1024
    max_backlog_rows: Annotated[Count, about("Deliveries that may wait to be written.")] = 100_000
    max_backlog_bytes: Annotated[
        Bytes, about("Bytes of long payloads that may wait to be written.")
    ] = 64 * 1024 * 1024
    write_seconds: Annotated[Seconds, about("Interval at which the log is written.")] = 0.1
