"""Messages of users and replies of agents, both ways."""

from __future__ import annotations

import pytest

from tests.bridge.toy import ToyAgent
from tests.plugins.discord.place import Place, Route
from tests.plugins.discord.world import BOT, THREAD, World

pytestmark = pytest.mark.anyio


async def test_a_direct_message_is_pushed_and_answered(
    place: Place, world: World, route: Route, agent: ToyAgent
) -> None:
    chat = world.direct()
    async with place.serving():
        asked = world.say(chat, "hello")
        assert await route.wait_for(1) == ["hello"]
        receipt = await agent.reply("hi yourself", str(chat.id), to=asked["id"])
        assert receipt.acks[0].success
    [got] = route.got
    assert got["sender"] == f"{place.prefix}:{chat.id}"
    assert got["messageId"] == asked["id"]
    content = got["content"]
    assert (content["senderId"], content["username"], content["full_name"]) == (
        *("1", "user1"),
        "User 1",
    )
    assert world.said(chat) == ["hi yourself"]


async def test_in_a_channel_only_what_is_addressed_to_the_bot_is_pushed(
    place: Place, world: World, route: Route, agent: ToyAgent
) -> None:
    chat = world.add()
    async with place.serving():
        world.say(chat, "among us")
        first = world.say(chat, f"<@{BOT}> what is up?")
        await route.wait_for(1)
        await agent.reply("not much", str(chat.id), to=first["id"])
        [answer] = world.own(chat)
        world.say(chat, f"<@{BOT}> and now?", answers=answer)
        assert await route.wait_for(2) == ["what is up?", "and now?"]
    assert answer["message_reference"]["message_id"] == first["id"]
    assert answer["allowed_mentions"] == {"parse": []} | (
        {"replied_user": False} if "replied_user" in answer["allowed_mentions"] else {}
    )
    assert route.got[1]["content"]["metadata"]["reply_to_message_id"] == answer["id"]


async def test_a_thread_is_a_chat_of_its_own(
    place: Place, world: World, route: Route, agent: ToyAgent
) -> None:
    parent = world.add()
    thread = world.add(THREAD, "talk", parent_id=parent.id)
    async with place.serving(allow_channels=[parent.id]):
        asked = world.say(thread, f"<@{BOT}> here?")
        await route.wait_for(1)
        await agent.reply("yes, here", str(thread.id), to=asked["id"])
    assert route.got[0]["sender"] == f"{place.prefix}:{thread.id}"
    assert world.said(thread) == ["yes, here"]
