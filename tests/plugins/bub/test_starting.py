"""How many workers start at a time."""

from __future__ import annotations

import anyio
import pytest

from tests.daemons import Loop, open_daemon
from tests.plugins.bub.bridges import light_workers, open_bridge

pytestmark = pytest.mark.anyio


async def test_workers_start_one_after_the_other_if_only_one_may_at_a_time(loop: Loop) -> None:
    with open_daemon(loop, light_workers(**{"agents.max_starting": 1})) as daemon:
        async with open_bridge(daemon) as bridge:
            async with anyio.create_task_group() as tasks:
                for chat in range(6):
                    tasks.start_soon(bridge.spawn, str(chat))
            await bridge.event("ready", 6)
            happened = [
                payload["content"]["event"]
                for address, payload in bridge.heard
                if address == "system:events" and payload["type"] == "agent_event"
            ]
            assert happened == ["spawned", "ready"] * 6


async def test_a_worker_that_never_connects_does_not_keep_the_others_waiting(loop: Loop) -> None:
    stuck: dict[str, object] = {
        "workers.telegram.agent": ["sleep", "60"],
        "workers.telegram.spawner": "subprocess",
        "drain_seconds": 0.1,
    }
    with open_daemon(loop, light_workers(**{"agents.max_starting": 1}, **stuck)) as daemon:
        async with open_bridge(daemon) as bridge, anyio.create_task_group() as tasks:
            tasks.start_soon(bridge.spawn, "1")
            await bridge.event("spawned")
            ack = await bridge.spawn("2", channel="web", channel_type="web")
            assert ack.success
            tasks.cancel_scope.cancel()
