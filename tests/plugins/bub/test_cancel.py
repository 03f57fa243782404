"""`turn.cancel` to system:route: a bridge stops a turn without knowing whose it is."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from busd import Ack
from busd_plugins.bub.chats import Chat
from tests.daemons import Loop, open_daemon
from tests.plugins.bub.bridges import Bridge, light_workers, open_bridge

pytestmark = pytest.mark.anyio

WORKER = Chat("telegram", "1").agent_id


async def cancel(bridge: Bridge, sender: str, said_by: str = "", **data: Any) -> Ack:
    payload = {
        "type": "agent_event",
        **({"from": said_by} if said_by else {}),
        "content": {"event": "turn.cancel", "data": data},
    }
    [ack] = (await bridge.client.send("system:route", payload, sender=sender)).acks
    return ack


@pytest.mark.parametrize(
    ("sender", "said_by", "data"),
    [
        ("tg:1", "", {}),
        ("tg:1", "tg:2", {"chat_id": "2"}),  # a chat speaks for itself
        ("telegram-bridge", "tg:1", {"turn": "m1"}),
        ("telegram-bridge", "", {"chat_id": "1", "channel": "telegram"}),
    ],
)
async def test_a_cancel_is_passed_on_to_the_agent_of_its_authors_chat(
    loop: Loop, sender: str, said_by: str, data: dict[str, str]
) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            ack = await cancel(bridge, sender, said_by, **data)
            assert (ack.success, ack.read()) == (True, {"by": WORKER})


async def test_a_cancel_starts_nobody(loop: Loop) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            ack = await cancel(bridge, "tg:1")  # of a chat that never had an agent
            assert (ack.success, ack.read()["content"]["message"]) == (True, "no such turn")
            assert (await bridge.call("agents.list"))["agents"] == []
            await bridge.spawn("1")
            await bridge.call("agents.stop", clientId=WORKER)
            ack = await cancel(bridge, "tg:1")  # of one whose worker does not run
            assert (ack.success, ack.read()["content"]["message"]) == (True, "no such turn")
            assert (await bridge.agent())["status"] == "stopped"
            assert len(bridge.events("spawned")) == 1


async def test_a_cancel_stands_in_line_behind_the_words_it_is_about(loop: Loop) -> None:
    """The worker is only starting when it comes: it hears of both, in order."""
    settings = {"workers.default.command": ["sleep", "60"], "workers.default.spawner": "subprocess"}
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge, anyio.create_task_group() as tasks:
            tasks.start_soon(bridge.route, "1", "hello", "m1")
            await bridge.event("spawned")
            ack = await cancel(bridge, "tg:1", turn="m1")
            assert ack.read()["content"] == {
                "status": "ok",
                "message": "cancelled",
                "request_id": ack.read()["content"]["request_id"],
            }
            assert ack.client_id == "plugin:bub"


async def test_another_chat_does_not_stop_the_turn(loop: Loop) -> None:
    settings = {"workers.default.command": ["sleep", "60"], "workers.default.spawner": "subprocess"}
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "hello", "m1")
            ack = await cancel(bridge, "tg:2", turn="m1")
            assert ack.read()["content"]["message"] == "no such turn"
            ack = await cancel(bridge, "tg:1", turn="m1")
            assert ack.read()["content"]["message"] == "cancelled"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"event": "ready"}, "agent_event: system:route takes turn.cancel, not ready"),
        (
            {"event": "turn.cancel", "data": {"chat_id": [7]}},
            "agent_event turn.cancel: content.data: "
            "Expected `int | str`, got `array` - at `$.chat_id`",
        ),
        (
            {"event": "turn.cancel"},
            "no chat_id, and telegram-bridge is not the address of a chat",
        ),
    ],
)
async def test_other_events_and_cancels_of_no_chat_are_refused(
    loop: Loop, content: dict[str, Any], why: str
) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            payload = {"type": "agent_event", "content": content}
            [ack] = (await bridge.client.send("system:route", payload)).acks
            assert (ack.success, ack.message) == (False, why)
