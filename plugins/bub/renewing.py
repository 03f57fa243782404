"""Outdated workers: those that run with an older `[workers.NAME]` table are restarted."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from busd import Refuse, unfinished_turns

if TYPE_CHECKING:
    from busd_plugins.bub.agent import Agent
    from busd_plugins.bub.roster import Roster

_LOOK_SECONDS = 0.5
_SHARE = 10  # the time between two looks is so many times what a look takes
_AT_ONCE = 20


async def renew_workers(roster: Roster) -> None:
    """Restart outdated workers when the settings were read again: busy ones after their turn."""
    await roster.is_settled.wait()
    at_once = anyio.CapacityLimiter(_AT_ONCE)
    while True:
        reloaded = roster.reloaded = anyio.Event()
        began = anyio.current_time()
        outdated = [agent for agent in roster.agents.values() if agent.is_outdated]
        if not outdated:
            await reloaded.wait()
            continue
        heard = roster.ctx.heard([agent.client_id for agent in outdated])
        owed = {name for name, (_, acks) in heard.items() if acks}
        quiet = [agent for agent in outdated if agent.client_id not in owed]
        idle = [agent for agent in quiet if not await _is_busy(agent)]
        pause = max(_LOOK_SECONDS, _SHARE * (anyio.current_time() - began))
        async with anyio.create_task_group() as tasks:
            for agent in idle:
                tasks.start_soon(_renew, agent, at_once)
        await anyio.sleep(pause)


async def _is_busy(agent: Agent) -> bool:
    """Tell whether a worker starts, has messages before it, or is at a turn."""
    if agent.worker.is_starting or agent.waiting:
        return True
    workspace = Path(agent.session.workspace)
    return bool(await anyio.to_thread.run_sync(unfinished_turns, workspace))


async def _renew(agent: Agent, at_once: anyio.CapacityLimiter) -> None:
    async with at_once:
        if agent.is_outdated:  # still: it may have ended meanwhile
            agent.roster.ctx.log.info("agent.renewed", agent=agent.client_id)
            with suppress(Refuse):  # the bus stops
                await agent.worker.restart()
