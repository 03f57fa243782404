"""The messages of the format's document, from a client to an agent and back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from busd.gateway import parse_lenient
from busd.testing.gateway import GatewayClient, GatewayKit, Words, open_gateway
from busd_plugins.agentiq.dialect import AgentIQ
from tests.gateway.agentiq.asking import texts, user_message
from tests.gateway.agentiq.test_examples import (
    ERROR,
    INTERACTION,
    PROMPTS,
    STEP,
    SYSTEM,
    TOKEN,
    USER,
    check,
)
from tests.gateway.agentiq.test_on_the_bus import connect, send, shown

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def kit(anyio_backend: str) -> AsyncIterator[GatewayKit]:
    """A gateway whose words go to `agent:bob`."""
    async with open_gateway() as opened:
        yield opened


async def asked(kit: GatewayKit) -> tuple[GatewayClient, Words]:
    """Return a client in the conversation of the examples, and its words that wait."""
    bob, ann = kit.agent("bob"), await connect(kit, "thread_1")
    assert await send(kit, ann, user_message(thread_id="thread_1")) == []
    return ann, bob.words()


async def test_a_user_message_and_an_interaction_message_reach_the_agent(kit: GatewayKit) -> None:
    bob, ann = kit.agent("bob"), await kit.connect(AgentIQ)
    assert await send(kit, ann, USER) == []
    words = bob.words()
    assert (words.text, words.id, words.content["thread_id"]) == ("add these up", *["string"] * 2)
    assert words.content["full_name"] == "string"
    words.tell("turn.prompt", id="p1", input_type="text", text="Go on?")
    [prompt] = await shown(kit, ann)
    assert (prompt["thread_id"], prompt["parent_id"]) == ("string", "string")
    assert await send(kit, ann, INTERACTION.replace('"id": "string"', '"id": "other"', 1)) == []
    answer = bob.words()
    assert (answer.text, answer.content["prompt_id"]) == ("Yes, go on with it", "p1")
    words.reply("45")
    frames = await shown(kit, ann)
    assert texts(frames) == ["45", None]
    assert {frame["parent_id"] for frame in frames} == {"string"}


async def test_an_interaction_message_may_have_the_id_of_the_message_before(
    kit: GatewayKit,
) -> None:
    bob, ann = kit.agent("bob"), await kit.connect(AgentIQ)
    await send(kit, ann, USER)
    bob.words().tell("turn.prompt", id="p1", input_type="text", text="Go on?")
    await shown(kit, ann)
    assert await send(kit, ann, INTERACTION) == []
    assert bob.words().text == "Yes, go on with it"


async def test_a_step_a_piece_and_an_error_of_an_agent_are_sent_as_shown(kit: GatewayKit) -> None:
    ann, words = await asked(kit)
    content = parse_lenient(STEP)["content"]
    words.tell("turn.step", id="step_1", status="in_progress", **content)
    words.tell("turn.delta", text=parse_lenient(TOKEN)["content"]["text"])
    words.tell("turn.error", code="111", message="no such address")
    step, piece, error, end = await shown(kit, ann)
    check(step, STEP.replace("2025-01-13T10:00:00.000Z", step["timestamp"]))
    check(piece, TOKEN.replace("2025-01-13T10:00:00.000Z", piece["timestamp"]))
    wanted = ERROR.replace('"111"', '"workflow_error"').replace("It has no @.", "111")
    check(error, wanted.replace("2025-01-13T10:00:00.000Z", error["timestamp"]))
    assert (end["content"], end["status"]) == ({"text": None}, "complete")


@pytest.mark.parametrize("kind", PROMPTS)
async def test_a_prompt_of_an_agent_is_sent_as_shown(kind: str, kit: GatewayKit) -> None:
    ann, words = await asked(kit)
    content = parse_lenient(PROMPTS[kind])["content"]
    content.pop("interaction", None)
    words.tell("turn.prompt", id="p1", **content)
    [frame] = await shown(kit, ann)
    check(frame, PROMPTS[kind].replace("2025-01-13T10:00:00.000Z", frame["timestamp"]))


@pytest.mark.parametrize("name", SYSTEM)
async def test_a_message_of_the_server_is_shown_to_the_others(name: str, kit: GatewayKit) -> None:
    bob, ann = kit.agent("bob"), await connect(kit, "thread_1")
    other = await connect(kit, "thread_1")
    assert await send(kit, ann, SYSTEM[name]) == []
    [text] = texts(await shown(kit, other))
    content = parse_lenient(SYSTEM[name])["content"]
    assert (content.get("text") or content.get("message") or content["name"]) in str(text)
    assert not bob.peer.inbox, "it is for nobody in particular"
