"""What users see while an agent works, and how long answers are posted."""

from __future__ import annotations

import base64

import pytest

from busd_plugins.discord.splitting import split_markdown
from tests.bridge.toy import ToyAgent
from tests.plugins.discord.place import Place, Route
from tests.plugins.discord.world import BOT, Fault, World

pytestmark = pytest.mark.anyio


async def test_typing_is_shown_until_the_answer_begins(
    place: Place, world: World, route: Route, agent: ToyAgent
) -> None:
    chat = world.direct()
    async with place.serving():
        world.say(chat, "hello")
        await world.wait_until(lambda: world.typing == [chat.id])


async def test_a_streamed_answer_is_edited_in_place(
    place: Place, world: World, route: Route, agent: ToyAgent
) -> None:
    chat = world.add()
    async with place.serving():
        asked = world.say(chat, f"<@{BOT}> count")
        await route.wait_for(1)
        await agent.tell("turn.delta", str(chat.id), turn=asked["id"], text="one")
        await world.wait_until(lambda: world.said(chat) == ["one …"])
        await agent.tell("turn.delta", str(chat.id), turn=asked["id"], text=", two")
        await world.wait_until(lambda: world.said(chat) == ["one, two …"])
        await agent.reply("one, two, three", str(chat.id), to=asked["id"])
    [message] = world.own(chat)
    assert message["content"] == "one, two, three"
    assert message["message_reference"]["message_id"] == asked["id"]


async def test_a_draft_that_was_deleted_is_replaced_by_a_message(
    place: Place, world: World, route: Route, agent: ToyAgent
) -> None:
    chat = world.direct()
    async with place.serving():
        asked = world.say(chat, "count")
        await route.wait_for(1)
        await agent.tell("turn.delta", str(chat.id), turn=asked["id"], text="one")
        await world.wait_until(lambda: world.own(chat))
        chat.messages.remove(world.own(chat)[0])
        await agent.reply("one, two", str(chat.id), to=asked["id"])
    assert world.said(chat) == ["one, two"]


async def test_shows_that_fail_do_not_keep_the_reply(
    place: Place, world: World, route: Route, agent: ToyAgent
) -> None:
    chat = world.direct()
    world.faults.append(Fault("POST", "/typing$", 403, {"code": 50013, "message": "no"}, times=99))
    async with place.serving():
        asked = world.say(chat, "hello")
        await route.wait_for(1)
        receipt = await agent.reply("hi", str(chat.id), to=asked["id"])
        assert receipt.acks[0].success


async def test_a_long_answer_is_several_messages_of_which_the_first_names_the_question(
    place: Place, world: World, route: Route, agent: ToyAgent
) -> None:
    chat = world.add()
    text = "\n".join(f"line {number} " + "x" * 90 for number in range(60))
    async with place.serving():
        asked = world.say(chat, f"<@{BOT}> much")
        await route.wait_for(1)
        await agent.reply(text, str(chat.id), to=asked["id"])
    assert "\n".join(world.said(chat)) == text
    assert len(world.own(chat)) == 3
    assert ["message_reference" in each for each in world.own(chat)] == [True, False, False]


async def test_files_are_uploaded_and_links_are_written(
    place: Place, world: World, agent: ToyAgent
) -> None:
    chat = world.direct()
    files = [
        {"kind": "image", "url": "https://example.org/cat.png"},
        {"name": "a.txt", "data": base64.b64encode(b"hello").decode()},
        {"name": "odd.bin", "data": "no base64!"},
    ]
    payload = {
        "type": "tg_reply",
        "messageId": "r1",
        "content": {"text": "look", "attachments": files},
    }
    async with place.serving():
        receipt = await agent.bus.send(f"{place.prefix}:{chat.id}", payload)
        assert receipt.acks[0].success
    first, second = world.own(chat)
    assert first["content"] == "look\nhttps://example.org/cat.png"
    assert (second["content"], second["attachments_sent"]) == ("(odd.bin could not be read)", 1)


async def test_nobody_is_called_by_what_an_agent_writes(
    place: Place, world: World, agent: ToyAgent
) -> None:
    chat = world.add()
    async with place.serving():
        await agent.reply("@everyone <@1> look", str(chat.id))
    [message] = world.own(chat)
    assert message["allowed_mentions"]["parse"] == []
    assert "users" not in message["allowed_mentions"]


CODE = "Look:\n```python\n" + "\n".join(f"    print({n})" for n in range(300)) + "\n```\nDone."


@pytest.mark.parametrize("limit", [100, 500, 2000])
def test_a_code_block_that_is_cut_is_closed_and_opened_again(limit: int) -> None:
    pieces = split_markdown(CODE, limit)
    assert all(len(piece) <= limit for piece in pieces)
    assert all(piece.count("```") % 2 == 0 for piece in pieces)
    lines = [line for piece in pieces for line in piece.splitlines() if "```" not in line]
    assert lines == [line for line in CODE.splitlines() if "```" not in line]


@pytest.mark.parametrize(
    "text",
    ["```" + "x" * 5000, "`" * 5000, "```py\n" * 700, " " * 5000 + "x", "a" * 5000 + "\n```\n```"],
)
def test_odd_texts_are_split_within_the_limit(text: str) -> None:
    pieces = split_markdown(text)
    assert pieces
    assert all(0 < len(piece) <= 2000 for piece in pieces)


def test_nothing_of_a_text_without_white_space_is_lost() -> None:
    text = "".join(str(number) for number in range(3000))
    assert "".join(split_markdown(text)) == text
