"""`turn.cancel` with a reason: all turns end, and their users hear why."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from busd.agent.turn import Turn
from tests.agent.conftest import MakeAgent, User, serving

pytestmark = pytest.mark.anyio


async def stuck(turn: Turn) -> str:
    await turn.delta("begun")
    await anyio.sleep_forever()
    return ""


def cancel(sender: str) -> dict[str, object]:
    content = {"event": "turn.cancel", "data": {"reason": "enough"}}
    return {"type": "agent_event", "from": sender, "content": content}


async def test_the_system_ends_all_turns_and_each_is_told(
    user: User, make_agent: MakeAgent, address: str, workspace: Path
) -> None:
    system = User("agent:system", user.agent, address)
    async with user, system, serving(make_agent(stuck, workspace=workspace)) as agent:
        for name in ("m1", "m2"):
            await user.write("hi", name)
        await user.event("turn.delta")
        ack = await system.send(cancel("agent:system"))
        assert ack["content"]["message"] == "2 cancelled"
        assert agent.ledger.unanswered() == []
        for name in ("m1", "m2"):
            error = await user.event("turn.error")
            assert error == {"turn": name, "code": "stopped", "message": "enough"}
            assert await user.text() == "Sorry, that failed: enough"
        ack = await system.send(cancel("agent:system"))
        assert ack["content"]["message"] == "0 cancelled"


async def test_anybody_else_cancels_one_turn_without_a_word(
    user: User, make_agent: MakeAgent
) -> None:
    async with user, serving(make_agent(stuck)):
        for name in ("m1", "m2"):
            await user.write("hi", name)
        assert (await user.event("turn.delta"))["turn"] == "m1"
        assert (await user.send(cancel(user.name)))["content"]["message"] == "cancelled"
        assert (await user.event("turn.delta"))["turn"] == "m2"


async def test_what_is_said_meanwhile_is_not_merged_into_a_turn_that_is_over(
    user: User, make_agent: MakeAgent, address: str
) -> None:
    async def answer(turn: Turn) -> str:
        if turn.message_id == "m1":
            await turn.delta("begun")
            with anyio.CancelScope(shield=True):
                await leave.wait()
            await anyio.lowlevel.checkpoint()
        return turn.text

    leave = anyio.Event()
    system = User("agent:system", user.agent, address)
    async with user, system, serving(make_agent(answer, when_busy="merge")):
        await user.write("first", "m1")
        await user.event("turn.delta")
        await user.write("second", "m2")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(system.send, cancel("agent:system"))
            await system.bus.call("ping", {})
            await user.write("third", "m3")
            leave.set()
            for name in ("m1", "m2"):
                assert (await user.event("turn.error"))["turn"] == name
                await user.text()
            assert await user.text() == "third"
