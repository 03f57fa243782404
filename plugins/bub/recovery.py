"""What an earlier bus left undone: turns that ended with it, and messages that it has kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from busd import Refuse, TgMessage, read_message, unfinished_turns
from busd_plugins.bub.chats import chat_of_message

if TYPE_CHECKING:
    from busd_plugins.bub.agent import ChatAgent
    from busd_plugins.bub.registry import Registry

_READ_AT_ONCE = 4


async def resume_turns(registry: Registry) -> None:
    """Start the workers that ended with an earlier bus and have turns to finish.

    They were acked, so nobody sends them again. As many start at a time as `agents.max_starting`.
    """
    at_once = anyio.CapacityLimiter(_READ_AT_ONCE)
    async with anyio.create_task_group() as tasks:
        for agent in list(registry.agents.values()):
            if agent.session.is_interrupted and agent.session.workspace:
                tasks.start_soon(_resume, agent, at_once)


async def _resume(agent: ChatAgent, at_once: anyio.CapacityLimiter) -> None:
    async with at_once:
        workspace = Path(agent.session.workspace)
        turns = await anyio.to_thread.run_sync(unfinished_turns, workspace)
    if not turns:
        agent.note(is_interrupted=False)
        return
    agent.registry.ctx.log.info("agent.taken_up", agent=agent.client_id, turns=len(turns))
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


async def deliver_mail(registry: Registry) -> None:
    """Start the workers for which an earlier bus has kept messages."""
    for address in registry.ctx.mail.waiting("agent:worker-"):
        agent = registry.agents.get(address) or await _agent_of_mail(registry, address)
        if agent is not None:
            registry.start_queue.add(agent)
    registry.start_queue.look()


async def _agent_of_mail(registry: Registry, address: str) -> ChatAgent | None:
    """Return a new agent for the chat of a message whose bus ended before it wrote a session."""
    ctx = await registry.ctx.mail.first(address)
    if ctx is None:
        return None
    types = registry.settings.agents.channel_types
    try:
        message = read_message(ctx.payload, TgMessage)
        placed = chat_of_message(message, ctx.author, ctx.sender, types)
        if placed.chat.agent_id == address:
            return registry.agent_of(placed)
        reason = "it belongs to another chat"
    except Refuse as refusal:
        reason = refusal.reason
    registry.ctx.log.warning("agent.unknown", agent=address, reason=reason)
    return None
