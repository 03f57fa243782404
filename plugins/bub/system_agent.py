"""The system agent: starts agents on request, and forwards messages to the right one.

It answers at `system:spawn` and `agent:system` (`spawn_request`, `configure`, what agents report),
at `system:route`
(a `tg_message` or `turn.cancel` that names no agent), and stands in for agents that are absent. It
tells what happens to agents at `system:events`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw

from busd import (
    Ack,
    AgentEvent,
    Configure,
    GeneralResponse,
    Refuse,
    SpawnRequest,
    SpawnResult,
    TgMessage,
    write_message,
)
from busd_plugins.bub.agent import SYSTEM
from busd_plugins.bub.chats import CancelledChat, chat_of_address, chat_of_message, requested_chat
from busd_plugins.bub.pending import PendingMessage
from busd_plugins.bub.sessions import NoSessions

if TYPE_CHECKING:
    from busd import Context
    from busd_plugins.bub.registry import Registry


async def spawn(registry: Registry, request: SpawnRequest | Refuse, ctx: Context) -> Ack:
    """Start or find the agent of a chat; the answer is the ack, and a message of its own.

    A request that does not fit gets the message, too: existing bridges ignore acks. It goes to
    the author. So a sender with a prefix (`tg:1`) can only have it sent to itself; only a bridge,
    which speaks for others anyway, names another address.
    """
    if isinstance(request, Refuse):
        result = SpawnResult(success=False, error=request.reason)
    else:
        result = await _try_to_spawn(registry, request)
        result.chat_id = request.chat_id
    result.request_id = ctx.message_id
    ctx.post(ctx.author, result, sender=SYSTEM)
    payload = write_message(result, sender=SYSTEM)
    return Ack(result.success, result.error or "", payload=payload)


async def _try_to_spawn(registry: Registry, request: SpawnRequest) -> SpawnResult:
    try:
        placed = requested_chat(request, registry.settings.agents.channel_types)
        agent = registry.agent_of(placed)
        await agent.ensure_running()
    except Refuse as refusal:
        return SpawnResult(success=False, error=refusal.reason)
    return SpawnResult(success=True, client_id=agent.client_id, status=agent.session.status)


def route(registry: Registry, message: TgMessage, ctx: Context) -> PendingMessage:
    """Hand a user's words to the agent of their chat; its ack is the ack.

    Plain, not async: the message takes its place in the order it came.
    """
    types = registry.settings.agents.channel_types
    return registry.agent_of(chat_of_message(message, ctx.author, ctx.sender, types)).take(ctx)


def cancel(registry: Registry, event: AgentEvent, ctx: Context) -> PendingMessage | GeneralResponse:
    """Hand a `turn.cancel` to the agent of a chat; without an agent there is nothing to cancel."""
    if event.event != "turn.cancel":
        raise Refuse(f"agent_event: system:route takes turn.cancel, not {event.event[:80]}")
    wanted = event.read(CancelledChat)
    placed = chat_of_message(wanted, ctx.author, ctx.sender, registry.settings.agents.channel_types)
    is_known = placed.chat.agent_id in registry.agents
    message = registry.agent_of(placed).take_if_up(ctx) if is_known else None
    return message or GeneralResponse("ok", "no such turn", ctx.message_id)


def stand_in(registry: Registry, payload: Raw, ctx: Context) -> PendingMessage:
    """Store a message for an absent agent, and start the agent."""
    return registry.named(ctx.to).take(ctx)


async def configure(registry: Registry, wanted: Configure, ctx: Context) -> None:
    """Change where the answers of a chat go, and its agent's settings, for good.

    The chat is known by the sender: that is checked, what a payload says of itself is not.
    """
    agent = registry.named(chat_of_address(ctx.sender).agent_id)
    agent.configure(wanted)
    await _keep(registry)


async def take_report(registry: Registry, event: AgentEvent, ctx: Context) -> None:
    """Record what an agent was told by its chat directly (`configured`); ack all other events."""
    agent = registry.agents.get(ctx.sender)
    if event.event != "configured" or agent is None:
        return
    wanted = event.read(Configure)
    agent.configure(wanted, is_known_to_worker=True)
    await _keep(registry)


async def _keep(registry: Registry) -> None:
    """Write the sessions now, so that the ack confirms a permanent change."""
    try:
        await registry.sessions.flush()
    except NoSessions as problem:
        raise Refuse(str(problem), retry_seconds=5) from None
