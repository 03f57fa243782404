"""A client of stage chat, as the tests speak for it."""

from __future__ import annotations

from typing import Any

from busd_plugins.stage.dialect import StageChat
from tests.gateway.stage.line import Frame, Line


def connect(**about: Any) -> Line:
    line = Line(StageChat, {"session_id": "c1"}, **about)
    line.open()
    return line


def stages(frames: list[Frame]) -> list[tuple[str, str]]:
    """Return the stage or type of each frame, and what it says."""
    said = ("content", "message", "response", "error")
    found = [[frame[name] for name in said if name in frame] for frame in frames]
    kinds = [frame.get("stage") or frame["type"] for frame in frames]
    return [(kind, texts[0]) for kind, texts in zip(kinds, found, strict=True)]
