"""Whatever two clients of any formats say: words, order, authors and threads come back."""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from busd.testing.gateway import open_gateway
from tests.gateway.e2e.chat import Heard
from tests.gateway.e2e.clients import CLIENTS
from tests.gateway.e2e.pairs import FORMATS, Player

AUTHORS = {"group": "zhang"}  # of the others: the owner
# No words that have a meaning in a format: `exit`, mentions, objects, and a text without words.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="@＠{"), min_size=1)


class Turn(NamedTuple):
    """Words of one of the two, what they refer to, and what the agent answers."""

    who: str
    text: str
    about: int  # the number of earlier words; of none, if there are not so many
    answer: str


turns = st.builds(
    Turn,
    st.sampled_from(["ann", "ben"]),
    texts.filter(lambda text: text.strip() and text.strip().lower() != "exit"),
    st.integers(0, 3),
    texts.filter(str.strip),
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([*permutations(FORMATS, 2)]), st.lists(turns, min_size=1, max_size=4))
def test_words_order_authors_and_threads_come_back(
    formats: tuple[str, str], said: list[Turn]
) -> None:
    anyio.run(hold, formats, said)


async def hold(formats: tuple[str, str], said: list[Turn]) -> None:
    """Hold a conversation, and check what each of the three has got of it."""
    async with open_gateway() as kit:
        player = Player(kit, " and ".join(formats))
        for name in player.formats:
            await player.enter(name)
        abouts = []
        for number, turn in enumerate(said):
            about = f"m{turn.about}" if turn.about < number else ""
            abouts.append(about if player.formats[turn.who] not in ("stage", "agentiq") else "")
            await player.say(turn.who, f"m{number}", about, turn.text)
            player.reply(turn.answer)
            await player.gather()
    authors = [AUTHORS.get(player.formats[turn.who], "owner") for turn in said]
    assert [got["text"] for got in player.got] == [turn.text for turn in said]
    assert [got["senderId"] for got in player.got] == authors
    ids = [got["messageId"] for got in player.got]
    for name, dialect in player.formats.items():
        heard = heard_by(player, name)
        words = [each for each in heard if each.kind == "words"]
        shown = [n for n, turn in enumerate(said) if dialect == "group" or turn.who != name]
        assert [each.text for each in words] == [said[n].text for n in shown]
        assert [each.author for each in words] == [authors[n] for n in shown]
        answers = [each for each in heard if each.kind == "answer"]
        if dialect == "stage":
            continue  # it has no ids for the words of others
        assert [each.id for each in words] == [ids[n] for n in shown]
        assert [(each.about, each.text) for each in answers] == [
            (ids[n], turn.answer) for n, turn in enumerate(said)
        ]
        if dialect in ("tkr", "group"):
            assert [each.about for each in words] == [abouts[n] for n in shown]


def heard_by(player: Player, name: str) -> list[Heard]:
    """Return what the frames of a client mean in its format."""
    dialect = player.formats[name]
    chat = CLIENTS[dialect](None, "bakery")  # type: ignore[arg-type]  # nothing is connected
    for frame in player.frames[name]:
        chat.take(frame)
    return chat.heard
