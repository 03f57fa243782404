"""The system agent: starts agents on request, and forwards messages to the right one.

It answers at `system:spawn` and `agent:system` (`spawn_request`, `configure`, what agents report),
at `system:route` (a `tg_message` or `turn.cancel` that names no agent), and starts agents that are
absent when mail is kept for them. It tells what happens to agents, and which messages go round in a
loop, at `system:events`.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from busd import (
    Ack,
    AgentEvent,
    Configure,
    Context,
    GeneralResponse,
    Identity,
    Plugin,
    Refuse,
    SpawnRequest,
    SpawnResult,
    TgMessage,
    write_message,
)
from busd_plugins.bub import chats, maintenance
from busd_plugins.bub.agent import EVENTS
from busd_plugins.bub.chats import CancelledChat, chat_of_address, chat_of_message, requested_chat
from busd_plugins.bub.forwarded import Forwarded
from busd_plugins.bub.notices import SYSTEM
from busd_plugins.bub.registry import Registry
from busd_plugins.bub.sessions import NoSessions

plugin = Plugin("bub", version="1.0")
_registries: list[Registry] = []  # the one of the bus that runs us


def _registry() -> Registry:
    if not _registries:
        raise Refuse("the agents are not ready", retry_seconds=1)
    return _registries[0]


async def settled_registry() -> Registry:
    registry = _registry()
    await registry.is_settled.wait()
    return registry


@plugin.on_start
async def start(ctx: Context) -> None:
    registry = Registry(ctx)
    await registry.open()
    _registries.append(registry)
    ctx.tasks.start_soon(registry.settle)
    ctx.tasks.start_soon(maintenance.write_sessions, registry)
    ctx.tasks.start_soon(maintenance.stop_idle_workers, registry)
    ctx.tasks.start_soon(maintenance.forget_old_agents, registry)
    ctx.tasks.start_soon(maintenance.renew_workers, registry)
    ctx.tasks.start_soon(registry.start_queue.run)


@plugin.on_stop
async def stop(ctx: Context) -> None:
    registry = _registries.pop()
    await registry.close()


@plugin.on_reload
async def reload(ctx: Context) -> None:
    for registry in _registries:
        await registry.reload()


@plugin.on_peer_joined
def joined(name: str, ctx: Context) -> None:
    for registry in _registries:
        registry.joined(name)


@plugin.on_peer_left
def left(name: str, ctx: Context) -> None:
    for registry in _registries:
        registry.left(name)


@plugin.keeps_mail
def keeps_mail(address: str) -> bool:
    return any(address in registry.agents for registry in _registries)


@plugin.on_mail
def take_mail(address: str, ctx: Context) -> None:
    for registry in _registries:
        registry.agents[address].on_mail(ctx)


@plugin.on_dead_letter
def report_dead_letter(reason: str, ctx: Context) -> None:
    for registry in _registries:
        registry.agents[ctx.to].on_dead_letter(reason, ctx)


@plugin.on_loop
def report_loop(path: tuple[str, ...], rule: str, ctx: Context) -> None:
    data = Raw(msgspec.json.encode({"path": path, "rule": rule}))
    ctx.post(EVENTS, AgentEvent("loop.found", data), sender=SYSTEM)


@plugin.checks
def check(sender: str, type_name: str) -> str | None:
    return chats.refusal_of(sender, type_name)


@plugin.names_speakers
def speakers(sender: str, type_name: str, payload: Raw) -> list[str]:
    return chats.speakers_of(sender, type_name, payload)


@plugin.checks_names
def check_name(name: str, identity: Identity) -> str | None:
    for registry in _registries:
        return registry.refusal_of(name, identity)
    return None


# Messages


@plugin.handles(to=("system:spawn", "agent:system"))
async def spawn(request: SpawnRequest | Refuse, ctx: Context) -> Ack:
    """Start or find the agent of a chat; the answer is the ack, and a message of its own.

    A request that does not fit gets the message, too: existing bridges ignore acks. It goes to
    the author. So a sender with a prefix (`tg:1`) can only have it sent to itself; only a bridge,
    which speaks for others anyway, names another address.
    """
    registry = _registry()
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


@plugin.handles(to="system:route")
def route(message: TgMessage, ctx: Context) -> Forwarded:
    """Hand a user's words to the agent of their chat; its ack is the ack.

    Plain, not async: the message takes its place in the order it came.
    """
    registry = _registry()
    types = registry.settings.agents.channel_types
    return registry.agent_of(chat_of_message(message, ctx.author, ctx.sender, types)).take(ctx)


@plugin.handles(to="system:route")
def cancel(event: AgentEvent, ctx: Context) -> Forwarded | GeneralResponse:
    """Hand a `turn.cancel` to the agent of a chat; without an agent there is nothing to cancel."""
    if event.event != "turn.cancel":
        raise Refuse(f"agent_event: system:route takes turn.cancel, not {event.event[:80]}")
    registry = _registry()
    wanted = event.read(CancelledChat)
    placed = chat_of_message(wanted, ctx.author, ctx.sender, registry.settings.agents.channel_types)
    if placed.chat.agent_id in registry.agents:
        agent = registry.agent_of(placed)
        if agent.is_up:
            return agent.take(ctx)
    return GeneralResponse("ok", "no such turn", ctx.message_id)


@plugin.handles(to="agent:system")
async def configure(wanted: Configure, ctx: Context) -> None:
    """Change where the answers of a chat go, and its agent's settings, for good.

    The chat is known by the sender: that is checked, what a payload says of itself is not.
    """
    registry = _registry()
    agent = registry.named(chat_of_address(ctx.sender).agent_id)
    agent.configure(wanted)
    await _keep(registry)


@plugin.handles(to="agent:system")
async def take_report(event: AgentEvent, ctx: Context) -> None:
    """Record what an agent was told by its chat directly (`configured`); ack all other events."""
    registry = _registry()
    agent = registry.agents.get(ctx.sender)
    if event.event != "configured" or agent is None:
        return
    wanted = event.read(Configure)
    agent.configure(wanted, is_known_to_worker=True)
    await _keep(registry)


@plugin.handles(to="agent:system")
def ignore_response(response: GeneralResponse) -> None:
    """Ack an acknowledgement: there is nothing to do."""


async def _keep(registry: Registry) -> None:
    """Write the sessions now, so that the ack confirms a permanent change."""
    try:
        await registry.sessions.flush()
    except NoSessions as problem:
        raise Refuse(str(problem), retry_seconds=5) from None
