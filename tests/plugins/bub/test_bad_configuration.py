"""Workers that cannot work as they are configured: whoever waits hears why, at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from busd.agent.program_check import openai_extra_fix
from tests.daemons import Loop, open_daemon
from tests.plugins.bub.bridges import light_workers, open_bridge
from tests.systemd.managers import ROOT

pytestmark = pytest.mark.anyio

# A second try would come after the test has given up.
SLOW_TO_RESTART = {
    "workers.default.spawner": "subprocess",
    "workers.default.restart_seconds": 30.0,
    "agents.stop_seconds": 1.0,
}


async def test_exit_code_78_is_not_tried_again_and_the_sender_hears_the_reason(loop: Loop) -> None:
    settings = light_workers(**{"workers.default.environment.BEHAVE": "exit:78"})
    with open_daemon(loop, {**settings, **SLOW_TO_RESTART}) as daemon:
        async with open_bridge(daemon) as bridge:
            ack = await bridge.route("1", "hello")
            assert not ack.success
            assert ack.message == (
                "the worker failed: exit code 78, bad configuration; "
                "it said last: light agent: exit"
            )
            assert len(bridge.events("exited")) == 1
            assert not bridge.events("restarted")
            assert (await bridge.agent())["status"] == "failed"
            await bridge.route("1", "hello")  # somebody may have mended it
            assert len(bridge.events("exited")) == 2


async def test_an_endpoint_without_the_extra_that_it_needs_is_said_in_the_first_answer(
    loop: Loop, tmp_path: Path
) -> None:
    (tmp_path / "httpx.py").write_text("raise ImportError\n")  # as if it were not installed
    settings = {
        **SLOW_TO_RESTART,
        "workers.default.openai_url": "http://127.0.0.1:9/v1",
        "workers.default.model": "m",
        "workers.default.environment.PYTHONPATH": f"{tmp_path}:{ROOT}",
    }
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            ack = await bridge.route("1", "hello")
            assert not ack.success
            assert ack.message == (
                "the worker failed: exit code 78, bad configuration; it said last: "
                f"busd: --openai needs httpx; run: {openai_extra_fix()}"
            )
            assert (await bridge.agent())["status"] == "failed"


@pytest.mark.parametrize("persistent", ["no", "lines"])
async def test_a_command_that_is_not_there_is_said_in_the_first_answer(
    loop: Loop, persistent: str
) -> None:
    settings = {
        **SLOW_TO_RESTART,
        "workers.default.command": ["no-such-program", "-x"],
        "workers.default.persistent": persistent,
    }
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            ack = await bridge.route("1", "hello")
            answer = await bridge.reply("1") if ack.success else ack.message
            assert "program 'no-such-program' not found in PATH" in str(answer)
