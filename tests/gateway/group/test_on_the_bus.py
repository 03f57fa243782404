"""Group chat with the real hub, store and bus: from clients to agents, and back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from busd.gateway.hub import KnownUser
from busd.testing.gateway import GatewayClient, GatewayKit, open_gateway
from busd_plugins.group import GroupChat
from busd_plugins.stage.dialect import StageChat
from tests.gateway.group.hall import Json
from tests.gateway.group.said import LI, error_of, message, of_type

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def kit(anyio_backend: str) -> AsyncIterator[GatewayKit]:
    """A gateway whose words go to `agent:bob`."""
    async with open_gateway() as opened:
        opened.tokens = {"令牌": KnownUser("user124")}
        yield opened


async def connect(kit: GatewayKit, user: str = "owner", room: str = "group123") -> GatewayClient:
    return await kit.connect(GroupChat, user=user, room=room)


async def send(kit: GatewayKit, client: GatewayClient, frame: Json) -> list[Json]:
    """Send a frame and return what the client gets."""
    client.take()
    await client.receive(msgspec.json.encode(frame).decode())
    return await shown(kit, client)


async def shown(kit: GatewayKit, client: GatewayClient) -> list[Json]:
    await kit.settle()
    frames: list[Json] = client.take_frames()
    return frames


def kinds(frames: list[Json]) -> list[str]:
    return [frame["message_type"] for frame in frames]


async def test_a_mentioned_agent_answers_and_the_default_one_does_not(kit: GatewayKit) -> None:
    bob, scribe = kit.agent("bob"), kit.agent("书记员")
    client = await connect(kit)
    frames = await send(kit, client, message(text="＠agent：书记员，请记录", message_id="m1"))
    assert kinds(frames) == ["chat", "agent_response"]
    words = scribe.words()
    assert words.text == "＠agent：书记员，请记录"
    assert words.content["full_name"] == "张三"
    assert words.content["channel"] == "group"
    words.tell("turn.step", id="s1", name="写", status="in_progress")
    words.reply("记好了")
    status, answer = await shown(kit, client)
    assert status["payload"]["step"]["name"] == "写"
    assert answer["sender"]["id"] == "书记员"
    assert answer["payload"] == {
        "group_id": "group123",
        "text": "记好了",
        "reply_to": "m1",
        "is_thinking": False,
    }
    await send(kit, client, message(text="@agent 你呢？"))
    assert bob.words().text == "@agent 你呢？"  # the first that it gets


async def test_words_of_one_user_go_to_the_default_agent_with_their_files(kit: GatewayKit) -> None:
    bob = kit.agent("bob")
    client = await connect(kit, "user123")
    url = "https://f.example/t.csv"
    files = [{"name": "t.csv", "url": url}]
    frames = await send(kit, client, message(text="看看", attachments=files))
    assert frames[0]["payload"]["attachments"][0]["url"] == f"{url}?signed"
    words = bob.words()
    assert words.content["attachments"][0]["url"] == url
    words.reply("看了")
    (answer,) = await shown(kit, client)
    assert answer["sender"]["id"] == "bob"


async def test_a_task_is_done_by_its_agent(kit: GatewayKit) -> None:
    scribe = kit.agent("scribe")
    client = await connect(kit)
    agent = {"id": "scribe", "type": "agent", "name": "书记员"}
    frame = message("task", "整理日志", task_id="log", assignees=[agent], message_id="t1")
    await send(kit, client, frame)
    words = scribe.words()
    assert words.text == "整理日志"
    event = scribe.event()
    assert (event["event"], event["task_id"]) == ("task.created", "log")
    scribe.tell(
        words.chat, "task.updated", {"task_id": "log", "status": "completed", "progress": 100}
    )
    (update,) = await shown(kit, client)
    assert update["message_type"] == "task_update"
    assert update["sender"]["name"] in ("书记员", "scribe")
    assert (update["payload"]["status"], update["payload"]["progress"]) == ("completed", 100)
    assert len(update["payload"]["update_history"]) == 2
    later = await connect(kit)
    (task,) = of_type(await shown(kit, later), "task")
    assert (task["payload"]["status"], task["payload"]["progress"]) == ("completed", 100)


async def test_two_votes_at_once_both_count(kit: GatewayKit) -> None:
    one, two = await connect(kit), await connect(kit)
    await send(kit, one, message("poll", "去哪儿？", poll_id="p", options=["海边", "山上"]))
    await two.receive(msgspec.json.encode(message("poll", poll_id="p", vote="海边")).decode())
    vote = message("poll", poll_id="p", vote="山上", sender=LI)
    frames = await send(kit, one, vote)
    assert frames[-1]["payload"]["results"] == {"海边": ["user123"], "山上": ["user124"]}


async def test_a_question_is_answered_by_plain_words(kit: GatewayKit) -> None:
    bob = kit.agent("bob")
    client = await connect(kit)
    await send(kit, client, message(text="订票", message_id="m1"))
    words = bob.words()
    options = [
        {"id": "a", "label": "上午", "value": "am"},
        {"id": "b", "label": "下午", "value": "pm"},
    ]
    about = {"id": "q1", "input_type": "radio", "text": "哪一班？", "required": True}
    words.tell("turn.prompt", **about, options=options)
    (poll,) = await shown(kit, client)
    assert poll["message_type"] == "poll"
    wrong = await send(kit, client, message(text="晚上", reply_to="q1"))
    assert error_of(wrong)[0] == "MSG_FMT_100"
    frames = await send(kit, client, message(text="下午"))
    assert kinds(frames) == ["chat", "task_update"]
    answer = bob.words()
    assert (answer.text, answer.content["prompt_id"]) == ("pm", "q1")
    again = await send(kit, client, message("poll", poll_id="q1", vote="a"))
    assert error_of(again)[0] == "MSG_SND_001"


async def test_members_are_invited_and_speak_with_one_id(kit: GatewayKit) -> None:
    zhang = await connect(kit, "user123")
    li = await connect(kit, "")
    assert await shown(kit, li) == []
    refused = await send(kit, li, message("connect", auth_token="令牌", sender=LI))
    assert error_of(refused)[0] == "MSG_WSK_203"
    await send(kit, zhang, message("join", subject=LI))
    frames = await send(kit, li, message("connect", sender=LI))
    assert kinds(frames) == ["connect_ack", "system"]
    # 张三's name is no longer free.
    frames = await send(kit, li, message(text="我是张三"))
    assert error_of(frames)[0] == "MSG_FMT_100"
    frames = await send(kit, li, message(text="大家好", sender=LI))
    assert kinds(frames) == ["chat"]  # two users: no agent is asked


async def test_a_client_that_says_who_it_is_later_can_be_mentioned(kit: GatewayKit) -> None:
    zhang, li = await connect(kit), await connect(kit)
    await send(kit, li, message("connect", sender=LI))
    (chat,) = await send(kit, zhang, message(text="@李四 你好"))
    assert chat["payload"]["mentions"] == [LI]


async def test_the_room_outlives_a_restart(kit: GatewayKit) -> None:
    bob = kit.agent("bob")
    client = await connect(kit)
    await send(kit, client, message(text="还在吗", message_id="m1"))
    words = bob.words()
    await kit.restart(is_killed=True)
    client = await connect(kit)
    frames = await shown(kit, client)
    assert kinds(frames) == ["connect_ack", "chat", "agent_response"]
    assert frames[2]["payload"]["is_thinking"] is True
    words.reply("在")
    (answer,) = await shown(kit, client)
    assert (answer["payload"]["text"], answer["payload"]["reply_to"]) == ("在", "m1")


async def test_a_client_of_another_dialect_in_the_same_conversation(kit: GatewayKit) -> None:
    bob = kit.agent("bob")
    group = await connect(kit, room="c1")
    stage = await kit.connect(StageChat, query={"session_id": "c1"})
    group.take()
    await stage.receive("从另一个界面问好")
    chat, thinking = await shown(kit, group)
    assert chat["message_type"] == "chat"
    assert chat["payload"]["text"] == "从另一个界面问好"
    assert thinking["payload"]["reply_to"] == chat["message_id"]
    bob.words().reply("你们好")
    (answer,) = await shown(kit, group)
    assert answer["payload"]["reply_to"] == chat["message_id"]
    stage.take()
    await send(kit, group, message(text="一个人，两个界面"))
    words = bob.words()
    words.reply("知道")
    await kit.settle()
    assert "一个人，两个界面" in str(stage.outputs)
    assert "知道" in str(stage.outputs)


async def test_nobody_waits_in_the_room_of_two_others(kit: GatewayKit) -> None:
    eve = await connect(kit, "eve", "ann_bob")
    for name in ("ann", "bob"):
        subject = {"id": name, "type": "user", "name": name}
        await send(kit, eve, message("join", subject=subject, sender={**LI, "id": "eve"}))
    ann = await connect(kit, "ann", "ann_bob")
    code, details = error_of(await shown(kit, ann))
    assert (code, "eve has made it" in details) == ("MSG_WSK_203", True)
    owners = await connect(kit, "owner", "ann_dora")
    await send(kit, owners, message("join", subject={"id": "dora"}, sender={**LI, "id": "x"}))
    assert kinds(await shown(kit, await connect(kit, "dora", "ann_dora"))) == [
        "connect_ack",
        "system",
    ]


async def test_a_task_does_not_grow_without_end(kit: GatewayKit) -> None:
    client = await connect(kit)
    await send(kit, client, message("task", "做", task_id="t"))
    for number in range(3):
        more = {f"部分{number}": "x" * 400_000}
        frames = await send(kit, client, message("task_update", task_id="t", **more))
        if number < 2:
            assert kinds(frames) == ["task_update"]
    assert error_of(frames)[0] == "MSG_SND_001"
