"""Stage chat with the real hub and a bus: from a client to its agent, and back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from busd.testing.gateway import GatewayClient, GatewayKit, open_gateway
from busd_plugins.stage.dialect import StageChat
from tests.gateway.stage.asking import stages
from tests.gateway.stage.line import frames_in

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def kit(anyio_backend: str) -> AsyncIterator[GatewayKit]:
    """A gateway whose words go to `agent:bob`."""
    async with open_gateway() as opened:
        yield opened


async def connect(kit: GatewayKit) -> GatewayClient:
    return await kit.connect(StageChat, query={"session_id": "c1"})


async def shown(kit: GatewayKit, client: GatewayClient) -> list[tuple[str, str]]:
    """Return stage and text of the frames that a client was sent since the last time."""
    await kit.settle()
    return stages(frames_in(client.take()))


async def send(kit: GatewayKit, client: GatewayClient, text: str) -> list[tuple[str, str]]:
    await client.receive(text)
    return await shown(kit, client)


async def test_words_travel_to_the_agent_and_its_stages_back(kit: GatewayKit) -> None:
    bob, ann = kit.agent("bob"), await connect(kit)
    assert [kind for kind, _ in await shown(kit, ann)] == ["welcome"]
    assert await send(kit, ann, "bake") == []
    words = bob.words()
    assert (words.text, words.content["channel"]) == ("bake", "stage")
    words.tell("turn.delta", text="Well. ")
    oven = {"name": "bake", "tool": "oven", "arguments": {"loaves": 2}}
    words.tell("turn.step", id="1", **oven, payload="", status="in_progress")
    words.tell("turn.step", id="1", **oven, payload="baked", status="complete")
    words.tell(
        "turn.step",
        id="2",
        name="sell",
        tool="till",
        payload="no such tool",
        status="failed",
        code="missing",
    )
    words.reply("Done.")
    assert await shown(kit, ann) == [
        ("initial_response", "Well. "),
        ("tool_result", "baked"),
        ("tool_missing", "no such tool"),
        ("final_response", "Done."),
    ]


async def test_a_question_is_answered_by_the_next_text(kit: GatewayKit) -> None:
    bob, ann = kit.agent("bob"), await connect(kit)
    await send(kit, ann, "bake")
    words = bob.words()
    words.tell("turn.prompt", id="p1", input_type="radio", text="Which?", options=["rye", "wheat"])
    assert (await shown(kit, ann))[-1] == ("prompt", "Which?\n1. rye\n2. wheat")
    assert await send(kit, ann, "2") == []
    chosen = bob.words()
    assert (chosen.text, chosen.content["prompt_id"]) == ("wheat", "p1")
    words.reply("Wheat it is.")
    assert await shown(kit, ann) == [("initial_response", "Wheat it is.")]


async def test_a_failure_is_shown_once(kit: GatewayKit) -> None:
    bob, ann = kit.agent("bob"), await connect(kit)
    await shown(kit, ann)
    await send(kit, ann, "bake")
    words = bob.words()
    words.tell("turn.error", code="cold", message="the oven is cold")
    words.reply("Sorry, that failed: the oven is cold")
    assert await shown(kit, ann) == [("initial_response", ""), ("exception", "the oven is cold")]


@pytest.mark.parametrize("is_killed", [False, True])
async def test_an_answer_outlives_the_client_and_the_gateway(
    kit: GatewayKit, is_killed: bool
) -> None:
    bob, ann = kit.agent("bob"), await connect(kit)
    await send(kit, ann, "bake")
    words = bob.words()
    await ann.leave()
    await kit.restart(is_killed=is_killed)
    words.reply("Done.")
    await kit.settle()
    ann = await connect(kit)
    assert (await shown(kit, ann))[1:] == [("initial_response", "Done.")]
    await ann.leave()
    assert [kind for kind, _ in await shown(kit, await connect(kit))] == ["welcome"]


async def test_a_session_is_private_to_its_user(kit: GatewayKit) -> None:
    bob, ann = kit.agent("bob"), await connect(kit)
    other = await kit.connect(StageChat, user="dora", query={"session_id": "c1"})
    assert [kind for kind, _ in await shown(kit, other)] == ["welcome"]
    await send(kit, ann, "bake")
    bob.words().reply("Done.")
    assert await shown(kit, other) == []


async def test_exit_closes_the_connection(kit: GatewayKit) -> None:
    ann = await connect(kit)
    await ann.receive("exit")
    assert ann.is_closed
