"""Who may write to the bot, edited messages, attachments and commands."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bridge.toy import ToyAgent
from tests.plugins.discord.place import Place, Route
from tests.plugins.discord.world import BOT, GUILD, World

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ({}, ["1 direct", "2 direct", "1 room", "2 room"]),
        ({"allow_users": [1]}, ["1 direct", "1 room"]),
        ({"allow_guilds": [GUILD]}, ["1 room", "2 room"]),
        ({"allow_guilds": [GUILD + 1]}, []),
        ({"allow_channels": [5]}, []),
        ({"allow_users": [2], "allow_guilds": [GUILD]}, ["2 direct", "2 room"]),
    ],
)
async def test_only_those_on_the_lists_are_heard(
    place: Place, world: World, route: Route, lists: dict[str, Any], expected: list[str]
) -> None:
    room = world.add()
    chats = {1: world.direct(1), 2: world.direct(2)}
    # What is said last shows that all before it was looked at, where it is heard.
    async with place.serving(**lists):
        for user_id, chat in chats.items():
            world.say(chat, f"{user_id} direct", user_id)
        for user_id in chats:
            world.say(room, f"<@{BOT}> {user_id} room", user_id)
        last = world.add()
        world.say(last, "x", BOT)
        await route.wait_for(len(expected))
    assert sorted(route.texts()) == sorted(expected)


async def test_all_messages_of_a_channel_are_pushed_if_that_is_set(
    place: Place, world: World, route: Route
) -> None:
    room = world.add()
    async with place.serving(groups="all"):
        world.say(room, "among us")
        assert await route.wait_for(1) == ["among us"]


async def test_other_bots_and_the_bot_itself_are_not_heard(
    place: Place, world: World, route: Route
) -> None:
    room = world.add()
    async with place.serving():
        world.say(room, f"<@{BOT}> I am a webhook", webhook_id="77")
        world.say(room, f"<@{BOT}> myself", BOT)
        world.say(room, f"<@{BOT}> a user")
        assert await route.wait_for(1) == ["a user"]


async def test_an_edited_message_is_a_message_of_its_own(
    place: Place, world: World, route: Route, agent: ToyAgent
) -> None:
    room = world.add()
    async with place.serving():
        message = world.say(room, f"<@{BOT}> helo")
        world.change(room, message)  # a preview
        world.change(room, message, f"<@{BOT}> hello")
        assert await route.wait_for(2) == ["helo", "hello"]
        edit = route.got[1]
        await agent.reply("hi", str(room.id), to=edit["messageId"])
    assert edit["content"]["metadata"]["edits_message_id"] == message["id"]
    [answer] = world.own(room)
    assert answer["message_reference"]["message_id"] == message["id"]


async def test_attachments_are_links_up_to_the_limit(
    place: Place, world: World, route: Route
) -> None:
    chat = world.direct()
    small = {
        "id": "1",
        "filename": "cat.png",
        "size": 10,
        "url": "https://cdn.example/cat.png",
        "proxy_url": "https://cdn.example/cat.png",
        "content_type": "image/png",
    }
    large = small | {"id": "2", "filename": "film.mp4", "size": 1000, "content_type": "video/mp4"}
    async with place.serving(max_attachment_bytes=100):
        world.say(chat, "", attachments=[small, large])
        await route.wait_for(1)
    first, second = route.got[0]["content"]["attachments"]
    assert first == {
        "kind": "image",
        "url": "https://cdn.example/cat.png",
        "name": "cat.png",
        "mime": "image/png",
        "size": 10,
    }
    assert second == {"kind": "video", "name": "film.mp4", "mime": "video/mp4", "size": 1000}


async def test_stop_ends_the_turn(place: Place, world: World, route: Route) -> None:
    chat = world.direct()
    async with place.serving():
        world.say(chat, "/stop")
        assert await route.wait_for(1) == ["agent_event"]
        await world.wait_until(lambda: world.said(chat) == ["⏹️ Stopped."])
    assert route.got[0]["content"]["event"] == "turn.cancel"
