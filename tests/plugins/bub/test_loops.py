"""Loops of agents are announced at system:events."""

from __future__ import annotations

import pytest

from busd import CallRefused
from tests.daemons import Loop, open_daemon
from tests.plugins.bub.bridges import light_workers, open_bridge

pytestmark = pytest.mark.anyio


async def test_a_loop_is_an_event(loop: Loop) -> None:
    with open_daemon(loop, {**light_workers(), "loops.max_hops": 1}) as daemon:
        async with open_bridge(daemon) as bridge:
            client = bridge.client
            await client.post("tg:1", {}, message_id="m1", caused_by="")
            await client.post("tg:1", {}, message_id="m2", caused_by="m1")
            with pytest.raises(CallRefused, match=r"loops\.max_hops"):
                await client.post("tg:1", {}, message_id="m3", caused_by="m2")
            me = client.client_id
            assert await bridge.event("loop.found") == {
                "path": [me, me, me, "tg:1"],
                "rule": "loop.hops",
            }
