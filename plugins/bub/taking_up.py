"""What an earlier bus left undone: turns that ended with it, and messages that it still held."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from msgspec import Raw

from busd import Refuse, UnfinishedTurn, unfinished_turns
from busd_plugins.bub.sessions import HeldMessage, NoSessions
from busd_plugins.bub.telling import NOT_STARTED, tell_failure

if TYPE_CHECKING:
    from busd import Sent
    from busd_plugins.bub.agent import Agent
    from busd_plugins.bub.roster import Roster

_READ_AT_ONCE = 4
_RETRY_SECONDS = 5.0


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


async def send_held(roster: Roster) -> None:
    """Send the messages that an earlier bus has acked and not handed over to their agents."""
    try:
        held = await roster.sessions.held()
    except NoSessions as problem:
        roster.ctx.log.warning("sessions.failed", reason=str(problem))
        return
    # All at once and in order; then each may wait as long as it has to.
    sent = [(message, _send(roster, message)) for message in held]
    async with anyio.create_task_group() as tasks:
        for message, begun in sent:
            tasks.start_soon(_see_through, roster, message, begun)


def _send(roster: Roster, held: HeldMessage) -> Sent:
    payload = Raw(held.payload)
    return roster.ctx.send(held.client_id, payload, sender=held.sender, message_id=held.message_id)


async def _see_through(roster: Roster, held: HeldMessage, sent: Sent) -> None:
    while True:
        receipt = await sent
        if roster.is_stopping:
            return
        wait = [ack for ack in receipt.acks if not ack.success and ack.should_retry is True]
        if not wait:
            break
        await anyio.sleep(_RETRY_SECONDS)
        sent = _send(roster, held)
    roster.sessions.release(held.number)
    agent = roster.agents.get(held.client_id)
    if agent is not None and not any(ack.success for ack in receipt.acks):
        turn = UnfinishedTurn(held.message_id, held.reply_to)
        tell_failure(roster, agent.session, turn, "worker_failed", NOT_STARTED)
