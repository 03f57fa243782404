"""What `agent:system` answers to requests as existing bridges send them, and to whom."""

from __future__ import annotations

from typing import Any

import pytest

from busd import Client
from busd_plugins.bub.chats import Chat
from tests.conftest import DaemonWith
from tests.daemons import Loop, open_daemon
from tests.plugins.bub.bridges import Bridge, light_workers, open_bridge

pytestmark = pytest.mark.anyio


async def request(bridge: Bridge, payload: dict[str, Any], **options: Any) -> str:
    """Send a `spawn_request`; return why its ack has failed, or "" if it has not."""
    whole = {"type": "spawn_request", **payload}
    [ack] = (await bridge.client.send("system:spawn", whole, **options)).acks
    assert ack.success == (not ack.message)
    return ack.message


async def result_at(bridge: Bridge, address: str) -> dict[str, Any]:
    found = await bridge.wait_for(lambda to, said: to == address and said["type"] == "spawn_result")
    content: dict[str, Any] = found["content"]
    return content


@pytest.mark.parametrize("channel", ["telegram", "tg"])
async def test_a_request_without_a_channel_type_takes_the_channel_for_it(
    loop: Loop, channel: str
) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            content = {"chat_id": "1", "channel": channel}
            assert await request(bridge, {"content": content}) == ""
            result = await result_at(bridge, "telegram-bridge")
            assert (result["success"], result["client_id"]) == (
                True,
                Chat("telegram", "1").agent_id,
            )
            assert (await bridge.agent())["channelType"] == "telegram"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"channel": "telegram"}, "content: Object missing required field `chat_id`"),
        ({"chat_id": "1"}, "content: Object missing required field `channel`"),
        (
            {"chat_id": [], "channel": "telegram"},
            "content.chat_id: Expected `int | str`, got `array`",
        ),
        ([], "content: Expected `object`, got `array`"),
    ],
    ids=["no chat", "no channel", "a list for a chat", "a list"],
)
async def test_a_request_that_does_not_fit_gets_a_result_with_the_reason(
    daemon_with: DaemonWith, content: object, reason: str
) -> None:
    """A bridge that ignores acks would wait 35 s for it."""
    async with open_bridge(daemon_with(light_workers())) as bridge:
        refusal = await request(
            bridge, {"from": "tg:requester", "content": content}, message_id="r1"
        )
        assert refusal == f"spawn_request: {reason}"
        result = await result_at(bridge, "tg:requester")
        assert result == {"success": False, "error": refusal, "request_id": "r1"}


async def test_a_request_that_does_not_fit_and_names_nobody_is_answered_to_its_sender(
    daemon_with: DaemonWith,
) -> None:
    async with open_bridge(daemon_with(light_workers())) as bridge:
        await request(bridge, {})
        assert not (await result_at(bridge, "telegram-bridge"))["success"]


@pytest.mark.parametrize(
    "content", [{}, {"chat_id": "", "channel": "telegram"}], ids=["malformed", "well-formed"]
)
async def test_a_chat_cannot_have_a_result_sent_to_somebody_else(
    daemon_with: DaemonWith, content: dict[str, str]
) -> None:
    async with open_bridge(daemon_with(light_workers())) as bridge:
        payload = {"from": "tg:victim", "content": content}
        assert await request(bridge, payload, sender="tg:asker")
        await result_at(bridge, "tg:asker")
        assert not [to for to, _ in bridge.heard if to == "tg:victim"]


async def test_a_result_that_comes_back_to_the_system_agent_is_not_answered(
    daemon_with: DaemonWith,
) -> None:
    async with open_bridge(daemon_with(light_workers())) as bridge:
        await bridge.client.subscribe("system:spawn")
        payload = {"type": "spawn_request", "from": "system:spawn"}
        await bridge.client.send("system:spawn", payload)
        await result_at(bridge, "system:spawn")
        await request_without_own_ack(bridge)
        results = [to for to, said in bridge.heard if said["type"] == "spawn_result"]
        assert results == ["system:spawn", "telegram-bridge"]


async def request_without_own_ack(bridge: Bridge) -> None:
    """Have something answered that comes after all that was sent before."""
    await bridge.client.send("system:spawn", {"type": "spawn_request"})
    await result_at(bridge, "telegram-bridge")


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "agent_event", "content": {"event": "task.done", "data": {"task": 7}}},
        {"type": "general_response", "content": {"status": "ok"}},
    ],
    ids=["agent_event", "general_response"],
)
async def test_the_system_agent_acks_every_type_that_the_table_lets_it_get(
    daemon_with: DaemonWith, payload: dict[str, Any]
) -> None:
    daemon = daemon_with(light_workers())
    async with Client("agent:reporter", address=f"unix:{daemon.path}") as agent:
        [ack] = (await agent.send("agent:system", payload)).acks
        assert (ack.success, ack.message) == (True, "")
