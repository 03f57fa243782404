"""Turns that an earlier bus took with it: their workers are started again, and finish them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from busd import Refuse, unfinished_turns

if TYPE_CHECKING:
    from busd_plugins.bub.agent import Agent
    from busd_plugins.bub.roster import Roster

_READ_AT_ONCE = 4


async def take_up_turns(roster: Roster) -> None:
    """Start the workers that ended with an earlier bus and have turns to finish.

    They were acked, so nobody sends them again. As many start at a time as `agents.max_starting`.
    """
    at_once = anyio.CapacityLimiter(_READ_AT_ONCE)
    async with anyio.create_task_group() as tasks:
        for agent in list(roster.agents.values()):
            if agent.session.is_interrupted and agent.session.workspace:
                tasks.start_soon(_take_up, agent, at_once)


async def _take_up(agent: Agent, at_once: anyio.CapacityLimiter) -> None:
    async with at_once:
        workspace = Path(agent.session.workspace)
        turns = await anyio.to_thread.run_sync(unfinished_turns, workspace)
    if not turns:
        agent.note(is_interrupted=False)
        return
    agent.roster.ctx.log.info("agent.taken_up", agent=agent.client_id, turns=len(turns))
    while True:
        # Somebody else may have its name, such as a connection that its last worker left behind.
        await agent.worker.until_free()
        try:
            await agent.ensure_running()
            if not agent.worker.is_queued:
                break
        except Refuse as refusal:
            if refusal.retry_seconds is None:
                break  # the chat has been told
            await anyio.sleep(refusal.retry_seconds)
