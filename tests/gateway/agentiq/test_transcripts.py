"""Whole conversations, as they stand in transcripts.txt."""

from __future__ import annotations

from pathlib import Path

import pytest

from busd_plugins.agentiq.dialect import AgentIQ
from tests.gateway.stage.transcript import Transcript, play, transcripts_in

TRANSCRIPTS = transcripts_in(Path(__file__).with_name("transcripts.txt"))


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda each: each.title)
def test_a_conversation_goes_as_recorded(transcript: Transcript) -> None:
    play(transcript, AgentIQ)


def test_all_conversations_are_found() -> None:
    text = Path(__file__).with_name("transcripts.txt").read_text()
    assert len(TRANSCRIPTS) == text.count("\n# ")
