"""Replies: how they look in a chat, and what happens if Telegram does not take them."""

from __future__ import annotations

import base64

import anyio
import pytest

from busd.bridge import Pace
from tests.bridge.toy import refused
from tests.plugins.telegram.chats import Answer, Trouble, failing
from tests.plugins.telegram.rig import QUICK, Rig, logged, poll_until

pytestmark = pytest.mark.anyio
GROUP = -100


async def test_markdown_is_shown_as_formatted_text(rig: Rig) -> None:
    async with rig.both() as (_, agent):
        await agent.reply("# Title\n😀 **bold** and `code`\n- [a link](https://busd.example)")
        [posted] = await rig.shown("Title\n😀 bold and code\n• a link")
    assert posted.formats() == [
        ("bold", "Title"),
        ("bold", "bold"),
        ("code", "code"),
        ("text_link", "a link"),
    ]


async def test_a_format_that_telegram_rejects_is_sent_as_plain_text(rig: Rig) -> None:
    async with rig.both() as (_, agent):
        words = "Bad Request: can't parse entities: Unsupported start tag"
        rig.server.trouble("sendMessage", failing(400, words))
        assert (await agent.reply("**bold**")).acks[0].success
        [posted] = await rig.shown("bold")
    assert posted.entities == []


async def test_a_long_reply_is_split_where_telegram_counts_and_keeps_its_format(rig: Rig) -> None:
    words = " ".join(["😀😀😀😀😀😀😀"] * 500)  # 15 units each, with the space
    async with rig.both() as (_, agent):
        await agent.reply(f"**{'a' * 1000}**\n```\n{words}\n```\nend")
        await poll_until(lambda: len(rig.server.texts()) == 3)
    first, second, third = rig.server.messages
    assert "".join(rig.server.texts()).replace(" ", "").replace("\n", "") == (
        f"{'a' * 1000}{words.replace(' ', '')}end"
    )
    assert [kind for kind, _ in first.formats()] == ["bold", "pre"]
    assert [kind for kind, _ in second.formats()] == ["pre"]
    assert third.formats() == [("pre", third.text.removesuffix("end").rstrip("\n"))]


async def test_an_empty_reply_is_acked_and_not_posted(rig: Rig) -> None:
    async with rig.both() as (_, agent):
        assert (await agent.reply("  \n ")).acks[0].success
        await agent.reply("after")
        await rig.shown("after")


async def test_attachments_are_posted_as_what_they_are(rig: Rig) -> None:
    data = base64.b64encode(b"bytes").decode()
    kinds = [("image", "image/png"), ("audio", "audio/ogg"), ("audio", "audio/mpeg")]
    kinds += [("video", "video/mp4"), ("file", "text/plain")]
    attachments = [{"kind": kind, "mime": mime, "data": data, "name": "x"} for kind, mime in kinds]
    attachments.append({"kind": "file", "data": "not base64!", "name": "odd"})
    attachments.append({"kind": "file", "url": "file:///etc/passwd", "name": "mine"})
    async with rig.both() as (_, agent):
        await agent.reply("look", attachments=attachments)
        await poll_until(lambda: len(rig.server.messages) == 8)
    posted = rig.server.messages
    found = [each.kind for each in posted]
    assert found == ["text", "photo", "voice", "audio", "video", "document", "text", "text"]
    assert {each.content for each in posted[1:6]} == {b"bytes"}
    assert [each.text for each in posted[6:]] == [
        "📎 odd: an empty file",
        "📎 mine: file:///etc/passwd",
    ]


async def test_an_attachment_that_telegram_cannot_fetch_is_posted_as_a_link(rig: Rig) -> None:
    url = "https://busd.example/a.png"
    words = "Bad Request: failed to get HTTP URL content"
    async with rig.both() as (_, agent):
        rig.server.trouble("sendPhoto", failing(400, words))
        await agent.reply("", attachments=[{"kind": "image", "url": url}])
        await rig.shown(f"📎 {url}")


@pytest.mark.parametrize(
    "answer",
    [
        Answer.failed(403, "Forbidden: bot was blocked by the user"),
        Answer.failed(403, "Forbidden: bot was kicked from the supergroup chat"),
        Answer.failed(400, "Bad Request: chat not found"),
    ],
)
async def test_a_chat_that_is_gone_is_a_permanent_refusal(
    rig: Rig, answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    rig.server.add_chat(8, refuses=answer)
    async with rig.both() as (bridge, agent):
        words, is_temporary = refused(await agent.reply("hi", 8))
        assert (words, is_temporary) == (answer.body["description"], False)
        assert bridge.status.refused == 1
    assert len(rig.server.calls("sendMessage")) == 1
    assert answer.body["description"] in logged(caplog.text, rig.server)


async def test_telegram_says_how_long_to_wait_and_is_obeyed(rig: Rig) -> None:
    async with rig.both() as (bridge, agent), anyio.create_task_group() as tasks:
        rig.server.trouble("sendMessage", failing(429, "Too Many Requests", retry_after=1))
        begun = anyio.current_time()
        tasks.start_soon(agent.reply, "hi")
        await poll_until(lambda: bridge.status.paused_until)
        tasks.start_soon(agent.reply, "elsewhere", 8)
        rig.server.add_chat(8)
        await poll_until(lambda: rig.server.texts() and rig.server.texts(8))
        assert anyio.current_time() - begun >= 1
    assert rig.server.texts() == ["hi"]
    assert bridge.status.repeated == 0


async def test_a_group_that_is_told_to_wait_does_not_hold_up_others(rig: Rig) -> None:
    rig.server.add_chat(GROUP, "supergroup")
    async with rig.both() as (bridge, agent), anyio.create_task_group() as tasks:
        rig.server.trouble("sendMessage", failing(429, "Too Many Requests", retry_after=60))
        tasks.start_soon(agent.reply, "to all", GROUP)
        await poll_until(lambda: rig.server.calls("sendMessage"))
        await agent.reply("hi")
        await rig.shown("hi")
        assert not bridge.status.paused_until
        tasks.cancel_scope.cancel()


async def test_a_group_gets_no_more_than_twenty_messages_a_minute(rig: Rig) -> None:
    rig.server.add_chat(GROUP, "supergroup")
    pace = Pace(patience_seconds=0.1)
    async with rig.agent() as agent, rig.bridge(pace):
        for number in range(20):
            assert (await agent.reply(str(number), GROUP)).acks[0].success
        words, is_temporary = refused(await agent.reply("too much", GROUP))
        assert (words, is_temporary) == ("a group gets 20 messages a minute", True)
        assert (await agent.reply("hi")).acks[0].success
    assert len(rig.server.texts(GROUP)) == 20


@pytest.mark.parametrize("way", ["half", "drop", "html"])
async def test_a_message_whose_outcome_is_unknown_is_repeated_with_a_mark(
    rig: Rig, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig.both() as (bridge, agent):
        rig.server.trouble("sendMessage", Trouble(way=way))
        assert (await agent.reply("**hi**")).acks[0].success
        _, again = await rig.shown("hi", "↻ hi")
        assert again.formats() == [("bold", "hi")]
        assert bridge.status.repeated == 1
    assert "is posted again: the outcome is not known" in logged(caplog.text, rig.server)


async def test_telegram_that_hangs_is_given_up_after_a_while(rig: Rig) -> None:
    pace = Pace(post_seconds=0.3)
    async with rig.agent() as agent, rig.bridge(pace) as bridge:
        rig.server.trouble("sendMessage", Trouble(way="hang"))
        assert (await agent.reply("hi")).acks[0].success
        await rig.shown("hi", "↻ hi")
        assert bridge.status.repeated == 1


async def test_an_error_of_the_server_is_tried_again(rig: Rig) -> None:
    async with rig.both() as (_, agent):
        rig.server.trouble("sendMessage", failing(500, "Internal Server Error"))
        assert (await agent.reply("hi")).acks[0].success
        await rig.shown("↻ hi")  # Telegram did not say that it was not posted


async def test_a_group_that_has_become_a_supergroup_keeps_its_conversation(rig: Rig) -> None:
    moved = Answer.failed(
        400,
        "Bad Request: group chat was upgraded to a supergroup chat",
        migrate_to_chat_id=-1000,
    )
    rig.server.add_chat(GROUP, "group", refuses=moved)
    rig.server.add_chat(-1000, "supergroup")
    async with rig.both(groups="all", allow_chats=[GROUP]) as (_, agent):
        await agent.reply("hello", GROUP, to="5")
        await rig.shown("hello", chat=-1000)
        rig.server.says("hi", -1000)
        await agent.heard(1)
        assert agent.got[0]["sender"] == f"{rig.prefix}:{GROUP}"
        await agent.reply("again", GROUP)
        await rig.shown("hello", "again", chat=-1000)
    assert len(rig.server.calls("sendMessage")) == 3


async def test_a_topic_that_is_gone_does_not_lose_the_reply(rig: Rig) -> None:
    rig.server.add_chat(GROUP, "supergroup")
    async with rig.both() as (_, agent):
        assert (await agent.reply("hi", GROUP, to="5@3")).acks[0].success
        [posted] = await rig.shown("hi", chat=GROUP)
        assert (posted.thread, posted.reply_to) == (0, 5)


async def test_a_redelivered_reply_is_not_posted_again(rig: Rig) -> None:
    async with rig.agent() as agent:
        for _ in range(2):
            async with rig.bridge(QUICK):
                for _ in range(2):
                    assert (await agent.reply("hi", id="one")).acks[0].success
    assert rig.server.texts() == ["hi"]
