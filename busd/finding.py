"""What a check of the settings, or of a host, found."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["ok", "warning", "problem"]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one check found; `fix` is a command or a sentence."""

    item: str
    level: Level
    says: str
    fix: str = ""
