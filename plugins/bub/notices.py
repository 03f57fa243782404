"""Notices of the bus itself to a chat about its turns, in the name of the chat's agent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import anyio
import anyio.to_thread
import msgspec
from msgspec import Raw

from busd import (
    AgentEvent,
    TgReply,
    UnfinishedTurn,
    event_address,
    finish_turns,
    unfinished_turns,
)

if TYPE_CHECKING:
    from busd import Sent
    from busd_plugins.bub.registry import Registry
    from busd_plugins.bub.sessions import Session

SYSTEM = "agent:system"
NOT_STARTED = "the agent could not be started"
StepStatus = Literal["in_progress", "complete"]
_START_STEP = "waiting for the agent to be started"
# A bridge that restarts with the bus is back within seconds.
_PAUSES = (0.25, 0.5, 1.0, 2.0, 4.0)


async def close_turns(registry: Registry, session: Session, code: str, message: str) -> None:
    """Notify a chat of the turns that nobody will answer, and have no later worker resume them.

    They were acked: without this they would go silent.
    """
    workspace = Path(session.workspace)
    has_any = bool(session.workspace)
    turns = await anyio.to_thread.run_sync(unfinished_turns, workspace) if has_any else []
    if not turns:
        return
    for turn in turns:
        send_failure(registry, session, turn, code, message)
    try:
        await anyio.to_thread.run_sync(finish_turns, workspace, turns)
    except OSError as problem:
        registry.ctx.log.warning(
            "turns.not_closed", agent=session.client_id, reason=problem.strerror or str(problem)
        )


def send_failure(
    registry: Registry, session: Session, turn: UnfinishedTurn, code: str, message: str
) -> None:
    """Notify a chat that a turn has failed: as an event, and as a reply that every bridge shows."""
    _send_event(
        registry, session, "turn.error", {"turn": turn.reply_to, "code": code, "message": message}
    )
    chat_id = session.talkto.partition(":")[2] or session.talkto
    reply = TgReply(
        f"Sorry, that failed: {message}",
        reply_to_message_id=turn.reply_to,
        chat_id=chat_id,
        channel=session.channel_type,
    )

    def send() -> Sent:
        # The id that the agent's own reply would have: whoever gets both can tell.
        message_id = f"{turn.message_id}.reply"
        return registry.ctx.send(
            session.talkto, reply, sender=session.client_id, message_id=message_id
        )

    registry.ctx.tasks.start_soon(_deliver, send, send())


def send_step(
    registry: Registry, session: Session, turn: UnfinishedTurn, status: StepStatus
) -> None:
    """Show that a turn waits until its agent is started, or does so no more."""
    step = {"turn": turn.reply_to, "id": f"{turn.message_id}.start", "name": _START_STEP}
    _send_event(registry, session, "turn.step", {**step, "payload": "", "status": status})


def _send_event(registry: Registry, session: Session, event: str, data: dict[str, Any]) -> None:
    """Send an event of a turn to the subscribers of the chat's events."""
    told = AgentEvent(event, Raw(msgspec.json.encode(data)))
    registry.ctx.post(event_address(session.talkto), told, sender=session.client_id)


async def _deliver(send: Callable[[], Sent], sent: Sent) -> None:
    """Repeat a reply, under the same id, until it is acked or all attempts have failed."""
    for pause in _PAUSES:
        receipt = await sent
        if not receipt.accepted or any(ack.success for ack in receipt.acks):
            return
        await anyio.sleep(pause)
        sent = send()
