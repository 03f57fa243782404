"""AgentIQ with the real hub and a bus: from a client to its agent, and back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from busd.testing.gateway import GatewayClient, GatewayKit, open_gateway
from busd_plugins.agentiq.dialect import AgentIQ
from busd_plugins.stage.dialect import StageChat
from tests.gateway.agentiq.asking import errors, notes, texts, user_message
from tests.gateway.stage.asking import stages
from tests.gateway.stage.line import Frame, frames_in

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def kit(anyio_backend: str) -> AsyncIterator[GatewayKit]:
    """A gateway whose words go to `agent:bob`."""
    async with open_gateway() as opened:
        yield opened


async def connect(kit: GatewayKit, conversation: str = "c1", **about: Any) -> GatewayClient:
    return await kit.connect(AgentIQ, query={"conversation_id": conversation}, **about)


async def send(kit: GatewayKit, client: GatewayClient, frame: Frame | str) -> list[Frame]:
    """Send a frame, and return what comes of it."""
    text = frame if isinstance(frame, str) else msgspec.json.encode(frame).decode()
    await client.receive(text)
    return await shown(kit, client)


async def shown(kit: GatewayKit, client: GatewayClient) -> list[Frame]:
    """Return the frames that a client was sent since the last time."""
    await kit.settle()
    return frames_in(client.take())


def answer_to(prompt: Frame, *values: str) -> Frame:
    """Return the answer to a prompt, as the toolkit's web UI makes it."""
    parts = [{"type": "text", "text": value} for value in values]
    beside = {name: prompt[name] for name in ("thread_id", "parent_id", "conversation_id")}
    content = {"messages": [{"role": "user", "content": parts}]}
    return {"type": "user_interaction_message", "id": "a1", **beside, "content": content}


CHECKBOX: dict[str, Any] = {
    "id": "p1",
    "input_type": "checkbox",
    "text": "How?",
    "options": [
        {"id": "1", "label": "Post", "value": "post"},
        {"id": "2", "label": "Call", "value": "call"},
    ],
}


async def test_words_travel_to_the_agent_and_its_answer_back(kit: GatewayKit) -> None:
    bob, ann = kit.agent("bob"), await connect(kit)
    image = {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}
    content = {"messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, image]}]}
    about = {"thread_id": "t1", "schema_type": "generate", "user": {"name": "Ann"}}
    assert await send(kit, ann, {**user_message(), "content": content, **about}) == []
    words = bob.words()
    assert (words.text, words.id, words.content["channel"]) == ("see", "m1", "agentiq")
    assert (words.content["thread_id"], words.content["full_name"]) == ("t1", "Ann")
    [attachment] = words.content["attachments"]
    assert (attachment["kind"], attachment["url"]) == ("image", "https://a.example/b.png")
    assert words.content["metadata"]["schema_type"] == "generate"
    words.tell("turn.step", id="s1", name="look", payload="a map", status="complete")
    words.reply("It is a map.")
    frames = await shown(kit, ann)
    assert (notes(frames), texts(frames)) == ([("look", "a map")], ["It is a map.", None])
    assert {frame["thread_id"] for frame in frames} == {"t1"}


async def test_several_values_of_a_checkbox_reach_the_agent(kit: GatewayKit) -> None:
    bob, ann = kit.agent("bob"), await connect(kit)
    await send(kit, ann, user_message())
    words = bob.words()
    words.tell("turn.prompt", **CHECKBOX)
    [prompt] = await shown(kit, ann)
    wrong = await send(kit, ann, answer_to(prompt, "post", "pigeon"))
    assert [code for code, _ in errors(wrong)] == ["invalid_user_message_content"]
    assert await send(kit, ann, answer_to(prompt, "post", "call")) == []
    chosen = bob.words()
    assert (chosen.text, chosen.content["prompt_id"]) == ("post\ncall", "p1")
    again = await send(kit, ann, answer_to(prompt, "post"))
    assert errors(again) == [("invalid_message", "parent_id: the prompt was already answered")]


async def test_a_second_message_cancels_the_turn_at_the_agent(kit: GatewayKit) -> None:
    bob, ann = kit.agent("bob"), await connect(kit)
    await send(kit, ann, user_message("one"))
    first = bob.words()
    first.tell("turn.delta", text="slow")
    assert texts(await shown(kit, ann)) == ["slow"]
    assert await send(kit, ann, user_message("two", "m2")) == []
    assert bob.event()["event"] == "turn.cancel"
    second = bob.words()
    first.tell("turn.delta", text="late")
    first.reply("late")
    second.reply("quick")
    frames = await shown(kit, ann)
    assert texts(frames) == ["quick", None]
    assert {frame["parent_id"] for frame in frames} == {"m2"}


async def test_a_prompt_outlives_the_socket_and_the_gateway(kit: GatewayKit) -> None:
    bob, ann = kit.agent("bob"), await connect(kit)
    await send(kit, ann, user_message())
    words = bob.words()
    words.tell("turn.prompt", **CHECKBOX, timeout_seconds=60)
    [prompt] = await shown(kit, ann)
    assert prompt["content"]["timeout"] == 60
    await ann.leave()
    await kit.restart(seconds_away=20, is_killed=True)
    other = await connect(kit, user="dora")
    assert await shown(kit, other) == []
    refused = await send(kit, other, answer_to(prompt, "post"))
    assert [code for code, _ in errors(refused)] == ["invalid_message"]
    ann = await connect(kit)
    [again] = await shown(kit, ann)
    assert 30 <= again["content"]["timeout"] <= 40
    assert await send(kit, ann, answer_to(again, "call")) == []
    assert bob.words().text == "call"


async def test_a_prompt_that_times_out_ends_the_turn_once(kit: GatewayKit) -> None:
    bob, ann = kit.agent("bob"), await connect(kit)
    await send(kit, ann, user_message())
    bob.words().tell("turn.prompt", **CHECKBOX, timeout_seconds=5)
    [prompt] = await shown(kit, ann)
    await kit.advance(6)  # its time is over, and its agent should say so
    await kit.advance(6)
    frames = await shown(kit, ann)
    assert errors(frames) == [("workflow_error", "prompt_timeout")]
    assert texts(frames) == [None]
    late = await send(kit, ann, answer_to(prompt, "call"))
    assert errors(late) == [("invalid_message", "parent_id: the prompt was not answered in time")]


async def test_an_answer_that_comes_while_nobody_is_there_is_shown_once(kit: GatewayKit) -> None:
    bob, ann = kit.agent("bob"), await connect(kit)
    await send(kit, ann, user_message())
    words = bob.words()
    await ann.leave()
    words.reply("Here it is.")
    await kit.settle()
    ann = await connect(kit)
    frames = await shown(kit, ann)
    assert texts(frames) == ["Here it is.", None]
    assert {frame["parent_id"] for frame in frames} == {"m1"}
    await ann.leave()
    assert await shown(kit, await connect(kit)) == []


async def test_an_unknown_client_proves_who_it_is_in_its_message(kit: GatewayKit) -> None:
    from busd.gateway.hub import KnownUser

    kit.tokens["s3cr3t"] = KnownUser("ann")
    bob = kit.agent("bob")
    ann = await connect(kit, user="")
    refused = await send(kit, ann, user_message(security={"token": "wrong"}))
    assert [code for code, _ in errors(refused)] == ["user_auth_error"]
    assert await send(kit, ann, user_message(security={"token": "s3cr3t"})) == []
    words = bob.words()
    assert words.content["senderId"] == "ann"
    assert "s3cr3t" not in str(words.payload)


async def test_a_fixed_id_may_be_used_for_every_message(kit: GatewayKit) -> None:
    bob, ann = kit.agent("bob"), await connect(kit)
    for text in ("one", "two"):
        await send(kit, ann, user_message(text, "same"))
        words = bob.words()
        assert words.text == text
        words.reply(text)
        frames = await shown(kit, ann)
        assert texts(frames) == [text, None]
        assert {frame["parent_id"] for frame in frames} == {"same"}


async def test_clients_of_two_dialects_see_each_others_words(kit: GatewayKit) -> None:
    bob, ann = kit.agent("bob"), await connect(kit)
    stage = await kit.connect(StageChat, query={"session_id": "c1"})
    assert stages(await shown(kit, stage))[0][0] == "welcome"
    await send(kit, ann, user_message("hello", user={"name": "Ann"}))
    bob.words().reply("hello Ann")
    assert texts(await shown(kit, ann)) == ["hello Ann", None]
    assert stages(await shown(kit, stage)) == [
        ("message", "Ann: hello"),
        ("message", "bob: hello Ann"),
    ]
    own = await send(kit, stage, "me, too")
    bob.words().reply("hello you")
    assert stages(own + await shown(kit, stage)) == [("initial_response", "hello you")]
    assert texts(await shown(kit, ann)) == ["owner: me, too\n\n", "hello you", None]
