"""Conversations of each ordered pair of formats: both clients and the agent get the same words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.e2e.chat import Chat, Heard
from tests.gateway.e2e.clients import CLIENTS, open_chats
from tests.gateway.e2e.pairs import FILE, played, transcripts
from tests.gateway.e2e.place import Place, open_place

pytestmark = pytest.mark.anyio
TRANSCRIPTS = transcripts()
ANSWERS = ["Let me see: 3 are left.", "None of spelt.", "Here you are."]
WORDS = ["Two rye loaves, “please” – 两个", "And one of spelt?", "Only rye, then."]


def heard(dialect: str, frames: list[Any]) -> list[Heard]:
    """Return what frames mean to the client of a format."""
    chat: Chat = CLIENTS[dialect](None, "bakery")  # type: ignore[arg-type]  # nothing is connected
    for frame in frames:
        chat.take(frame)
    return chat.heard


def test_there_is_a_transcript_for_each_ordered_pair() -> None:
    assert len(TRANSCRIPTS) == FILE.read_text().count("\n# ") + 1 == 12


@pytest.mark.parametrize("title", TRANSCRIPTS)
async def test_a_conversation_goes_as_recorded(title: str) -> None:
    lines, _ = await played(title, TRANSCRIPTS[title])
    assert lines == TRANSCRIPTS[title]


@pytest.mark.parametrize("title", TRANSCRIPTS)
async def test_words_order_authors_and_threads_are_the_same_for_all(title: str) -> None:
    _, player = await played(title, TRANSCRIPTS[title])
    assert [got["text"] for got in player.got] == WORDS
    ids = [got["messageId"] for got in player.got]
    authors = ["zhang" if player.formats[who] == "group" else "owner" for who in WHO]
    assert [got["senderId"] for got in player.got] == authors
    for name, dialect in player.formats.items():
        found = heard(dialect, player.frames[name])
        # Each hears the other's words; group chat shows everybody's own, too.
        own = [] if dialect == "group" else [n for n in range(3) if WHO[n] == name]
        words = [each for each in found if each.kind == "words"]
        others = [n for n in range(3) if n not in own]
        assert [each.text for each in words] == [WORDS[n] for n in others]
        assert [each.author for each in words] == [authors[n] for n in others]
        if dialect != "stage":
            assert [each.id for each in words] == [ids[n] for n in others]
        answers = [each for each in found if each.kind == "answer"]
        final = [each for each in answers if each.text.endswith("left.") or each.text in ANSWERS]
        assert [each.about for each in final] == ids
        assert [each.text for each in final] == ANSWERS


WHO = ["ann", "ben", "ann"]


@pytest.mark.parametrize("ann", ["tkr", "group"])
@pytest.mark.parametrize("ben", ["tkr", "group", "agentiq"])
def test_a_reply_or_thread_is_shown_to_the_other_client(ann: str, ben: str) -> None:
    if ann == ben:
        return
    shown = [line for line in TRANSCRIPTS[f"{ann} and {ben}"] if line.startswith("ann < ")]
    [reply] = [line for line in shown if '"And one of spelt?"' in line]
    replies = {"group": "reply_to", "tkr": "in_reply_to"}
    assert f'"{"thread_id" if ben == "agentiq" else replies[ann]}": "m1"' in reply


@pytest.fixture
def place() -> Iterator[Place]:
    with open_place() as opened:
        yield opened


async def test_clients_of_all_formats_are_in_one_conversation(place: Place) -> None:
    """Over real sockets, each with its own client."""
    chats = [client(place, "together") for client in CLIENTS.values()]
    texts = [f"said with {type(each).__name__}" for each in chats]
    async with open_chats(*chats):
        for chat, text in zip(chats, texts, strict=True):
            await chat.say(text)
            for other in chats:
                if other is not chat:
                    await other.until("words", text, author="owner")
                await other.until("answer", text)
    for chat in chats:
        assert [each.text for each in chat.all("answer")] == texts
