"""An agent whose bus goes down in the middle of a turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from busd.agent.agent import Agent
from busd.agent.turn import Turn
from tests.agent.conftest import User, serving
from tests.client.restarts import Restartable, until_back

pytestmark = pytest.mark.anyio


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Restartable]:
    started = Restartable(tmp_path)
    yield started
    started.end()


async def test_a_turn_survives_the_crash_of_the_bus(bus: Restartable) -> None:
    user = User("tg:1", "agent:w", bus.address())
    agent = Agent("agent:w", talkto="tg:1", address=bus.address(), arguments=[])
    go_on = anyio.Event()

    @agent.answers
    async def answer(turn: Turn) -> str:
        await turn.delta("begun")
        await go_on.wait()
        return "done"

    async with user, serving(agent):
        await user.write("hi", "m")
        await user.event("turn.delta")
        bus.kill()
        go_on.set()  # the answer comes while there is nobody to take it
        await bus.start()
        await until_back(user.bus)
        reply = await user.reply()
        assert (reply["content"]["text"], reply["reply_to_message_id"]) == ("done", "m")
        assert (await user.write("hi", "m"))["content"]["message"] == "taken already"
