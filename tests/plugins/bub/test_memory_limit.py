"""Workers with little memory: they start, and start again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from busd_plugins.bub.chats import Chat
from tests.daemons import Loop, open_daemon
from tests.plugins.bub.bridges import open_bridge

pytestmark = pytest.mark.anyio

MEGABYTE = 1024 * 1024
WORKER = Chat("telegram", "1").agent_id


@pytest.mark.parametrize("megabytes", [128, 256])
async def test_a_worker_with_little_memory_starts_a_second_time_and_knows_what_it_answered(
    loop: Loop, megabytes: int
) -> None:
    settings = {
        "workers.default.spawner": "subprocess",
        "workers.default.memory_max_bytes": megabytes * MEGABYTE,
        "workers.default.restarts": 0,
        "agents.stop_seconds": 1.0,
    }
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            assert (await bridge.route("1", "one", "m1")).success
            assert await bridge.reply("1") == "one"
            ledger = Path((await bridge.agent())["workspace"]) / "data" / "turns.jsonl"
            assert ledger.stat().st_size > 0  # what the second one reads
            # Ledgers of chatty agents are larger: all of it may not fit twice.
            fill(ledger, 30 * MEGABYTE)
            await bridge.call("agents.restart", clientId=WORKER)
            ack = await bridge.route("1", "two", "m2")
            assert ack.success, ack.message
            assert await bridge.reply("1", 2) == "two"
            again = await bridge.say(WORKER, "1", "one", "m1")
            assert json.loads(bytes(again.payload))["content"]["message"] == "taken already"


def fill(ledger: Path, size: int) -> None:
    """Make a ledger large by messages that were answered."""
    with ledger.open("ab") as file:
        for number in range(size // MEGABYTE):
            text = {"type": "tg_message", "content": {"text": "x" * MEGABYTE}}
            for state in ({"state": "taken", "sender": "tg:1", "payload": text}, {"state": "done"}):
                file.write(json.dumps({"id": f"old{number}", **state}).encode() + b"\n")
