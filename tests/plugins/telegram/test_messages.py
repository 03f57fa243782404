"""Messages of users: which are passed on, as what, and when they are confirmed to Telegram."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from busd import Refuse
from tests.plugins.telegram.chats import failing
from tests.plugins.telegram.rig import Rig, logged, poll_until

pytestmark = pytest.mark.anyio
GROUP = -100


async def test_a_message_reaches_the_agent_and_the_answer_the_chat(rig: Rig) -> None:
    async with rig.both() as (bridge, agent):
        number = rig.server.says("hi")
        [said] = await agent.heard()
        assert agent.got[0]["sender"] == f"{rig.prefix}:7"
        assert (said["text"], said["senderId"], said["chat_id"]) == ("hi", "7", "7")
        assert (said["username"], said["full_name"]) == ("user7", "User7")
        assert said["turn"] == str(number)
        assert said["metadata"]["telegram"] == {"message_id": number, "chat_type": "private"}
        await agent.reply("hello", to=said["turn"])
        [posted] = await rig.shown("hello")
        assert posted.reply_to == 0  # a private chat needs no threads
        assert (bridge.status.state, bridge.status.pushed) == ("connected", 1)


async def test_updates_are_confirmed_only_when_the_bus_has_them(rig: Rig) -> None:
    async with rig.agent() as agent:
        agent.refusals = [Refuse("later", retry_seconds=0) for _ in range(3)]
        rig.server.says("one")
        rig.server.says("two")
        async with rig.bridge():
            await poll_until(lambda: not agent.refusals)
            await agent.heard(2)
            await poll_until(lambda: len(rig.server.confirmed) == 2)
        assert agent.texts() == ["one", "two"]
        offsets = [int(each.get("offset", 0)) for each in rig.server.calls("getUpdates")]
        assert offsets[0] == 0
        assert offsets[-1] == 1002


async def test_updates_that_wait_are_kept_on_restart_and_pushed_once(rig: Rig) -> None:
    async with rig.agent() as agent:
        rig.server.says("before")
        async with rig.bridge():
            await agent.heard(1)
        rig.server.says("meanwhile")
        async with rig.bridge():
            await agent.heard(2)
    assert agent.texts() == ["before", "meanwhile"]


async def test_a_duplicate_update_is_pushed_once_also_by_the_next_process(rig: Rig) -> None:
    async with rig.agent() as agent:
        async with rig.bridge():
            rig.server.says("one")
            await agent.heard(1)
            await poll_until(lambda: rig.server.confirmed == [1000])
            again = {"message": rig.server._message_of(1, 7, 7) | {"text": "one"}}
            rig.server.update(1000, **again)
            await poll_until(lambda: rig.server.confirmed == [1000, 1000])
        rig.server.update(1000, **again)
        async with rig.bridge():
            rig.server.says("two")
            await agent.heard(2)
    assert agent.texts() == ["one", "two"]


async def test_updates_out_of_order_are_all_pushed(rig: Rig) -> None:
    def said(text: str) -> dict[str, Any]:
        return {"message": rig.server._message_of(1, 7, 7) | {"text": text}}

    async with rig.both() as (_, agent):
        rig.server.update(5000, **said("high"))
        await agent.heard(1)
        await poll_until(lambda: rig.server.confirmed == [5000])
        rig.server.update(6000, **said("higher"))
        await agent.heard(2)
    assert agent.texts() == ["high", "higher"]


async def test_an_unknown_kind_of_update_and_a_broken_one_are_skipped_and_logged(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig.both() as (_, agent):
        rig.server.update(odd={"new": "thing"})
        rig.server.update(message={"message_id": "no number", "odd": 1}, odd=1)
        rig.server.says("after")
        await agent.heard(1)
        await poll_until(lambda: len(rig.server.confirmed) == 3)
    assert agent.texts() == ["after"]
    assert "update 1000 is skipped: odd" in logged(caplog.text, rig.server)
    assert "update 1001 is skipped: message." in caplog.text


async def test_what_a_newer_telegram_adds_to_a_message_does_not_keep_it_from_the_agent(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    odd: dict[str, Any] = {
        "forward_origin": {"type": "of tomorrow"},
        "gift": 1,
        "entities": [],
        "quote": {},
    }
    async with rig.both() as (_, agent):
        replied = {"message_id": 1, "date": 1, "chat": {"id": 7, "type": "private"}, "text": "so"}
        rig.server.says("hello", **odd, reply_to_message=replied | odd)
        [heard] = await agent.heard(1)
    assert heard["text"] == "hello"
    assert heard["metadata"]["telegram"]["reply_to"]["text"] == "so"
    assert "skipped" not in caplog.text


async def test_a_text_of_ten_megabytes_is_refused_and_the_user_is_told(rig: Rig) -> None:
    async with rig.both() as (_, agent):
        rig.server.says("x" * 10_000_000)
        await rig.shown("Your message is too large to be passed on.")
        rig.server.says("small")
        await agent.heard(1)


async def test_a_refused_message_is_reported_to_its_user(rig: Rig) -> None:
    async with rig.both() as (bridge, agent):
        agent.refusals = [Refuse("no agent for you")]
        rig.server.says("hi")
        await rig.shown("Your message was not accepted: no agent for you")
        assert bridge.status.refused == 1


async def test_only_those_on_the_list_may_write_and_others_are_told_once(rig: Rig) -> None:
    async with rig.both(allow_users=[7]) as (_, agent):
        rig.server.says("let me in", chat=8, user=8)
        rig.server.says("please", chat=8, user=8)
        rig.server.says("hi")
        await agent.heard(1)
        await poll_until(lambda: len(rig.server.confirmed) == 3)
    assert agent.texts() == ["hi"]
    assert rig.server.texts(8) == ["You may not use this bot. (Your user id is 8.)"]


async def test_with_a_list_of_groups_only_these_are_served_and_no_private_chats(rig: Rig) -> None:
    for group in (GROUP, -200):
        rig.server.add_chat(group, "group")
    async with rig.both(allow_chats=[GROUP], groups="all") as (_, agent):
        rig.server.says("elsewhere", chat=-200)
        rig.server.says("alone")
        rig.server.says("here", chat=GROUP)
        await agent.heard(1)
        await poll_until(lambda: len(rig.server.confirmed) == 3)
    assert agent.texts() == ["here"]
    assert rig.server.texts(-200) == []


def mention(text: str, name: str) -> dict[str, Any]:
    offset = len(text[: text.index(name)].encode("utf-16-le")) // 2
    return {"entities": [{"type": "mention", "offset": offset, "length": len(name)}]}


async def test_in_groups_only_what_is_addressed_to_the_bot_is_passed_on(rig: Rig) -> None:
    rig.server.add_chat(GROUP, "supergroup")
    mine = {"message_id": 5, "date": 1, "chat": {"id": GROUP, "type": "group"}}
    mine |= {"text": "I said", "from": {"id": 4242, "is_bot": True, "first_name": "Busy"}}
    command: dict[str, Any] = {"entities": [{"type": "bot_command", "offset": 0, "length": 5}]}
    theirs: dict[str, Any] = {"entities": [{"type": "bot_command", "offset": 0, "length": 15}]}
    async with rig.both() as (_, agent):
        rig.server.says("by the way", GROUP)
        rig.server.says("@busy_bot, what?", GROUP, **mention("@busy_bot, what?", "@busy_bot"))
        rig.server.says("😀 ask @Busy_Bot", GROUP, **mention("😀 ask @Busy_Bot", "@Busy_Bot"))
        rig.server.says("@else_bot, you?", GROUP, **mention("@else_bot, you?", "@else_bot"))
        rig.server.says("and this", GROUP, reply_to_message=mine)
        rig.server.says("/help me", GROUP, **command)
        rig.server.says("/help@else_bot", GROUP, **theirs)
        heard = await agent.heard(4)
        await poll_until(lambda: len(rig.server.confirmed) == 7)
    assert agent.texts() == ["what?", "😀 ask @Busy_Bot", "and this", "/help me"]
    quoted = heard[2]["metadata"]["telegram"]["reply_to"]
    assert quoted == {"message_id": 5, "from": "Busy", "text": "I said"}


async def test_replies_in_groups_and_topics_refer_to_the_question(rig: Rig) -> None:
    rig.server.add_chat(GROUP, "supergroup", topics=[3])
    async with rig.both(groups="all") as (_, agent):
        number = rig.server.says("hi", GROUP, message_thread_id=3, is_topic_message=True)
        [said] = await agent.heard()
        assert (said["turn"], said["thread_id"]) == (f"{number}@3", "3")
        await agent.reply("hello", GROUP, to=said["turn"])
        [posted] = await rig.shown("hello", chat=GROUP)
        assert (posted.reply_to, posted.thread) == (number, 3)


async def test_start_is_answered_and_stop_cancels_the_turn(rig: Rig) -> None:
    async with rig.both() as (_, agent):
        rig.server.says("/start")
        rig.server.says("/stop")
        await poll_until(lambda: len(rig.server.texts()) == 2)
        assert rig.server.texts()[1] == "Stopped."
        assert rig.server.texts()[0].startswith("Hello.")
    [cancel] = agent.got
    assert cancel["content"] == {
        "event": "turn.cancel",
        "data": {"channel": rig.prefix, "chat_id": "7"},
    }


async def test_an_edited_message_is_a_message_of_its_own(rig: Rig) -> None:
    async with rig.both() as (_, agent):
        number = rig.server.says("hi")
        await agent.heard(1)
        rig.server.edits(number, "hi there")
        _, edited = await agent.heard(2)
    assert edited["text"] == "hi there"
    assert edited["turn"] == f"{number}e1001"
    assert edited["metadata"]["telegram"]["edited"] is True


async def test_photos_documents_and_voice_are_attached(rig: Rig) -> None:
    sizes = [
        {"file_id": f"p{size}", "file_unique_id": "u", "width": 1, "height": 1} for size in (1, 2)
    ]
    sizes[0]["file_size"], sizes[1]["file_size"] = 5, 900_000
    rig.server.files = {"p1": b"small", "d1": b"text", "v1": b"sound"}
    file = {"file_unique_id": "u", "file_size": 5}
    async with rig.both() as (_, agent):
        rig.server.says(photo=sizes, caption="look")
        document = {"file_id": "d1", "file_name": "a.txt", "mime_type": "text/plain"}
        rig.server.says(document=document | file)
        rig.server.says(voice={"file_id": "v1", "duration": 1, "mime_type": "audio/ogg"} | file)
        heard = await agent.heard(3)
    assert heard[0]["text"] == "look"
    found = [each for said in heard for each in said["attachments"]]
    assert [(each.get("kind", "file"), base64.b64decode(each["data"])) for each in found] == [
        ("image", b"small"),
        ("file", b"text"),
        ("audio", b"sound"),
    ]
    assert (found[1]["name"], found[1]["mime"]) == ("a.txt", "text/plain")


@pytest.mark.parametrize("told_size", [50_000_000, 10])  # Telegram may say less than it is
async def test_of_a_file_that_is_too_large_only_the_name_is_passed_on(
    rig: Rig, told_size: int
) -> None:
    rig.server.files = {"d1": b"x" * 2_000_000}
    document = {"file_id": "d1", "file_unique_id": "u", "file_name": "big.iso"}
    async with rig.both() as (_, agent):
        rig.server.says(document=document | {"file_size": told_size})
        [said] = await agent.heard()
        [found] = said["attachments"]
        assert (found["name"], found.get("data", "")) == ("big.iso", "")
        await rig.shown("big.iso is too large: only its name was passed on.")


async def test_a_file_that_cannot_be_read_is_tried_again_and_then_named(rig: Rig) -> None:
    rig.server.files = {"d1": b"text"}
    file = {"file_id": "d1", "file_unique_id": "u", "file_name": "a.txt", "file_size": 4}
    async with rig.both() as (_, agent):
        rig.server.trouble("getFile", failing(500, "Internal Server Error"))
        rig.server.says(document=file)
        [said] = await agent.heard()
        assert base64.b64decode(said["attachments"][0]["data"]) == b"text"
        rig.server.says(document=file | {"file_id": "gone"})
        await rig.shown("a.txt could not be read: only its name was passed on.")


async def test_a_message_of_a_kind_that_agents_cannot_read_is_answered(rig: Rig) -> None:
    async with rig.both():
        rig.server.says(location={"latitude": 1.0, "longitude": 2.0})
        await rig.shown("This kind of message cannot be passed on.")
