"""Whole conversations, as they stand in transcripts.txt."""

from __future__ import annotations

import json
import types
from typing import Any, Union, get_args, get_origin

import msgspec
import pytest

from busd_plugins.group.schema import MESSAGES
from tests.gateway.group.transcript import Transcript, play, read_transcripts

TRANSCRIPTS = read_transcripts()
STRUCTS = {(kind.direction, kind.name): kind.struct for kind in MESSAGES}
OWN = {"评论", "风"}  # members of clients that no struct has


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda each: each.title)
def test_a_conversation_goes_as_recorded(transcript: Transcript) -> None:
    assert list(play(transcript)) == transcript.lines


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda each: each.title)
def test_every_frame_is_described(transcript: Transcript) -> None:
    for line in transcript.lines:
        if line[0] in "<>":
            frame = json.loads(line[2:].partition(" ")[2])
            if line[0] == ">":
                # In what clients send, null stands for what is absent.
                payload = {n: value for n, value in frame["payload"].items() if value is not None}
                frame["payload"] = payload
                check_frame(frame, STRUCTS["receive", frame["message_type"]])
            else:
                made = {"message_id": "", "timestamp": ""}  # left out in the file
                check_frame({**made, **frame}, STRUCTS["send", frame["message_type"]])


def test_every_type_is_described_in_the_directions_it_has() -> None:
    assert len([key for key in STRUCTS if key[0] == "receive"]) == 25
    assert len([key for key in STRUCTS if key[0] == "send"]) == 20


def check_frame(value: Any, kind: Any) -> None:
    msgspec.convert(value, kind, strict=False)
    assert missing(value, kind) == []


def missing(value: Any, kind: Any) -> list[str]:
    """Return the members of a value that its type does not have."""
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    struct = next((k for k in kinds if isinstance(k, type) and issubclass(k, msgspec.Struct)), None)
    if isinstance(value, dict) and struct:
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
        unknown = [name for name in value if name not in fields and name not in OWN]
        return unknown + [m for n, v in value.items() if n in fields for m in missing(v, fields[n])]
    items = [get_args(each)[0] for each in kinds if get_origin(each) is list]
    if isinstance(value, list) and items:
        return [name for item in value for name in missing(item, items[0])]
    return []
