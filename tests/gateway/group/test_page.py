"""The conversation in docs/dialects/group.md goes as it is written there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from busd_plugins.group.html import MAX_CHARACTERS
from busd_plugins.group.links import MAX_LINKS
from busd_plugins.group.mentions import MAX_MENTIONS
from busd_plugins.group.messages import MAX_DEPTH
from busd_plugins.group.notices import MAX_IDS, MAX_TYPING_BYTES
from busd_plugins.group.people import MAX_NAME
from busd_plugins.group.tracked import MAX_OPTIONS
from tests.gateway.group.transcript import Transcript, play

PAGE = (Path(__file__).parents[3] / "docs/dialects/group.md").read_text()
MORE = "…"


def test_the_conversation_of_the_page() -> None:
    lines = PAGE.split("```text\n")[1].split("```")[0].splitlines()
    played = list(play(Transcript("page", lines)))
    assert len(played) == len(lines)
    for written, line in zip(lines, played, strict=True):
        assert line[0] == written[0]
        if line[0] == "<":
            expected, seen = (json.loads(each[2:].partition(" ")[2]) for each in (written, line))
            assert is_within(expected, seen), (expected, seen)


def is_within(expected: Any, seen: Any) -> bool:
    """Return whether an object has these members, and no others unless the page says so."""
    if not isinstance(expected, dict):
        return bool(expected == seen)
    named = {name: value for name, value in expected.items() if name != MORE}
    has_all = all(name in seen and is_within(value, seen[name]) for name, value in named.items())
    return has_all and (MORE in expected or len(named) == len(seen))


def test_the_limits_of_the_page() -> None:
    limits = PAGE.rsplit("\n\n", 1)[1]
    assert f"{MAX_DEPTH} levels" in limits
    assert f"{MAX_CHARACTERS:,} characters" in limits
    assert f"{MAX_IDS:,} ids" in limits
    assert f"`typing` up to {MAX_TYPING_BYTES:,} bytes" in limits
    assert f"up to {MAX_LINKS} links" in limits
    assert f"to {MAX_OPTIONS} entries" in limits.replace("\n", " ")
    assert f"mention {MAX_MENTIONS} names" in limits
    assert f"up to {MAX_NAME} characters" in limits
