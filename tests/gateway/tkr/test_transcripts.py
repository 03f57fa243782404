"""The transcripts: whole conversations with a real hub, and every frame against the schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import fields

from busd.testing.gateway import open_gateway
from busd_plugins.tkr.schema import MESSAGES
from tests.gateway.tkr.original import shown_by_the_original
from tests.gateway.tkr.played import Player, Transcript, read_transcripts

TRANSCRIPTS = list(
    read_transcripts(Path(__file__).with_name("transcripts.txt").read_text(encoding="utf-8"))
)
NOT_UNDERSTOOD = ("shout", "kitchen")  # types in the transcript of invalid input


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda transcript: transcript.title)
async def test_a_conversation_goes_as_the_transcript_says(transcript: Transcript) -> None:
    async with open_gateway() as kit:
        player = Player(kit)
        await player.play(transcript)
    for event, data in player.sent:
        check_sent(event, data)
    for event, data in player.received:
        if not (isinstance(data, dict) and _is_invalid(data)):
            assert fitting("receive", event, data), f"no struct takes {event} {data}"


def check_sent(event: str, data: Any) -> None:
    """Check that a frame has a struct with all its members, and that its client can read it."""
    [struct, *_] = fitting("send", event, data) or [None]
    assert struct is not None, f"no struct has all members of {event} {data}"
    if event == "message":
        shown_by_the_original(data)
        assert data["timestamp"].endswith("Z")
        for name, legacy in (("session_id", "sessionId"), ("from_agent", "fromAgent")):
            assert data.get(name) == data.get(legacy)


def fitting(direction: str, event: str, data: Any) -> list[Any]:
    """Return the structs of an event that have a member for each of the data."""
    found = []
    for kind in MESSAGES:
        if (kind.direction, kind.event) == (direction, event):
            names = {field.encode_name for field in fields(kind.struct)}
            try:
                msgspec.convert(data or {}, kind.struct)
            except msgspec.ValidationError:
                continue
            if not set(data or {}) - names:
                found.append(kind.struct)
    return found


def _is_invalid(data: dict[str, Any]) -> bool:
    return data.get("type") in NOT_UNDERSTOOD or data in ({}, {"type": "session"})


def test_every_kind_of_message_has_a_name_of_its_own() -> None:
    names = [kind.name for kind in MESSAGES]
    assert len(set(names)) == len(names)
    assert all(kind.summary or kind.struct.__doc__ for kind in MESSAGES)


def test_the_schema_can_be_generated() -> None:
    _, components = msgspec.json.schema_components([kind.struct for kind in MESSAGES])
    assert "ShownText" in components
