"""What is done again and again: sessions written, idle workers stopped, outdated ones restarted."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from busd import Refuse, unfinished_turns
from busd_plugins.bub.sessions import is_older
from busd_plugins.bub.starting import put_aside, remove_folder, remove_leftovers

if TYPE_CHECKING:
    from busd_plugins.bub.agent import ChatAgent
    from busd_plugins.bub.registry import Registry

_WRITE_SECONDS = 0.5
_ROUNDS_TO_ACTIVITY = 20
_IDLE_CHECKS = 4  # in the time after which a worker is idle
_SHORTEST, _LONGEST = 0.05, 15.0  # seconds between two looks
_HOUR_SECONDS = 3600.0
_DAY_SECONDS = 86_400.0
_RENEW_SECONDS = 0.5
_RENEW_SHARE = 10  # the time between two looks is so many times what a look takes
_RENEWED_AT_ONCE = 20


async def write_sessions(registry: Registry) -> None:
    """Write what was noted, soon after; who was active when, now and then."""
    for number in count(1):
        await anyio.sleep(_WRITE_SECONDS)
        if number % _ROUNDS_TO_ACTIVITY == 0:
            registry.note_activity()
        await registry.flush()


async def stop_idle_workers(registry: Registry) -> None:
    """Stop workers that have been idle for longer than their settings allow."""
    while True:
        tables = [*registry.settings.workers.values(), registry.settings.worker("default")]
        allowed = [table.idle_seconds for table in tables if table.idle_seconds > 0]
        shortest = min(allowed, default=_LONGEST)
        await anyio.sleep(min(max(shortest / _IDLE_CHECKS, _SHORTEST), _LONGEST))
        heard = registry.ctx.heard([agent.client_id for agent in registry.agents.values()])
        async with anyio.create_task_group() as tasks:
            for agent in list(registry.agents.values()):
                said, owed = heard.get(agent.client_id, (0, 0))
                if said != agent.heard or owed:
                    agent.heard = said
                    agent.note_activity()
                elif _is_idle(registry, agent):
                    tasks.start_soon(agent.worker.stop)


def _is_idle(registry: Registry, agent: ChatAgent) -> bool:
    if agent.worker.running is None or not agent.is_present or agent.worker.is_ending:
        return False
    settings = registry.settings.worker(agent.session.channel)
    allowed = settings.idle_seconds
    if allowed and not settings.agent:
        # Our own workers ack first: a silent one may still be at a turn.
        allowed = max(allowed, settings.turn_seconds)
    return 0 < allowed < anyio.current_time() - agent.active_at


async def forget_old_agents(registry: Registry) -> None:
    """Remove the workspaces of agents that stopped long ago, and all that is known of them."""
    await registry.is_settled.wait()
    await anyio.to_thread.run_sync(remove_leftovers, registry.state)
    while True:
        days = registry.settings.agents.keep_days
        for agent in list(registry.agents.values()):
            if _is_over(agent) and is_older(agent.session.stopped_at, days):
                await _forget(registry, agent)
        await anyio.sleep(min(max(days * _DAY_SECONDS / 4, _SHORTEST), _HOUR_SECONDS))


def _is_over(agent: ChatAgent) -> bool:
    is_up = agent.is_present or agent.worker.running or agent.worker.is_starting
    return not (is_up or agent.is_awaited)


async def _forget(registry: Registry, agent: ChatAgent) -> None:
    """Move the folder aside at once: the chat may start again while its files are removed."""
    registry.forget(agent)
    registry.sessions.forget(agent.client_id)
    registry.ctx.log.info("agent.forgotten", agent=agent.client_id)
    aside = put_aside(registry.state, Path(agent.session.workspace))
    if aside is not None:
        await anyio.to_thread.run_sync(remove_folder, aside)


async def renew_workers(registry: Registry) -> None:
    """Restart outdated workers when the settings were read again: busy ones after their turn."""
    await registry.is_settled.wait()
    at_once = anyio.CapacityLimiter(_RENEWED_AT_ONCE)
    while True:
        reloaded = registry.reloaded = anyio.Event()
        began = anyio.current_time()
        outdated = [agent for agent in registry.agents.values() if agent.is_outdated]
        if not outdated:
            await reloaded.wait()
            continue
        heard = registry.ctx.heard([agent.client_id for agent in outdated])
        owed = {name for name, (_, acks) in heard.items() if acks}
        quiet = [agent for agent in outdated if agent.client_id not in owed]
        idle = [agent for agent in quiet if not await _is_busy(agent)]
        pause = max(_RENEW_SECONDS, _RENEW_SHARE * (anyio.current_time() - began))
        async with anyio.create_task_group() as tasks:
            for agent in idle:
                tasks.start_soon(_renew, agent, at_once)
        await anyio.sleep(pause)


async def _is_busy(agent: ChatAgent) -> bool:
    """Return whether a worker starts, has messages before it, or is at a turn."""
    if agent.worker.is_starting or agent.has_mail:
        return True
    workspace = Path(agent.session.workspace)
    return bool(await anyio.to_thread.run_sync(unfinished_turns, workspace))


async def _renew(agent: ChatAgent, at_once: anyio.CapacityLimiter) -> None:
    async with at_once:
        if agent.is_outdated:  # still: it may have ended meanwhile
            agent.registry.ctx.log.info("agent.renewed", agent=agent.client_id)
            with suppress(Refuse):  # the bus stops
                await agent.worker.restart()
