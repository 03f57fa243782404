"""What an earlier bus left undone: turns that ended with it, and messages that it still held."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from msgspec import Raw

from busd import Refuse, UnfinishedTurn, unfinished_turns
from busd_plugins.bub.notices import NOT_STARTED, send_failure
from busd_plugins.bub.sessions import HeldMessage, NoSessions

if TYPE_CHECKING:
    from busd import Sent
    from busd_plugins.bub.agent import ChatAgent
    from busd_plugins.bub.registry import Registry

_READ_AT_ONCE = 4
_RETRY_SECONDS = 5.0


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


async def resend_held(registry: Registry) -> None:
    """Send the messages that an earlier bus has acked and not handed over to their agents."""
    try:
        held = await registry.sessions.held()
    except NoSessions as problem:
        registry.ctx.log.warning("sessions.failed", reason=str(problem))
        return
    # All at once and in order; then each may wait as long as it has to.
    sent = [(message, _send(registry, message)) for message in held]
    async with anyio.create_task_group() as tasks:
        for message, begun in sent:
            tasks.start_soon(_wait_for_ack, registry, message, begun)


def _send(registry: Registry, held: HeldMessage) -> Sent:
    payload = Raw(held.payload)
    return registry.ctx.send(
        held.client_id, payload, sender=held.sender, message_id=held.message_id
    )


async def _wait_for_ack(registry: Registry, held: HeldMessage, sent: Sent) -> None:
    while True:
        receipt = await sent
        if registry.is_stopping:
            return
        wait = [ack for ack in receipt.acks if not ack.success and ack.should_retry is True]
        if not wait:
            break
        await anyio.sleep(_RETRY_SECONDS)
        sent = _send(registry, held)
    registry.sessions.release(held.number)
    agent = registry.agents.get(held.client_id)
    if agent is not None and not any(ack.success for ack in receipt.acks):
        turn = UnfinishedTurn(held.message_id, held.reply_to)
        send_failure(registry, agent.session, turn, "worker_failed", NOT_STARTED)
