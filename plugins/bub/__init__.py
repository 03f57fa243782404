"""Bub: an agent for every chat, started when it is first needed, watched, and found by its chat."""

from __future__ import annotations

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
    TgMessage,
)
from busd_plugins.bub import agent_methods, chats, maintenance, system_agent
from busd_plugins.bub.agent_methods import (
    AgentList,
    AgentName,
    AgentRecord,
    AgentShown,
    Exported,
    ExportParams,
    ListParams,
    Logs,
    LogsParams,
    SpawnAnswer,
    SpawnParams,
)
from busd_plugins.bub.pending import PendingMessage
from busd_plugins.bub.registry import Registry

plugin = Plugin("bub", version="1.0")
_registries: list[Registry] = []  # the one of the bus that runs us


def _registry() -> Registry:
    if not _registries:
        raise Refuse("the agents are not ready", retry_seconds=1)
    return _registries[0]


async def _settled_registry() -> Registry:
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
    return await system_agent.spawn(_registry(), request, ctx)


@plugin.handles(to="agent:system")
async def configure(wanted: Configure, ctx: Context) -> None:
    await system_agent.configure(_registry(), wanted, ctx)


@plugin.handles(to="agent:system")
async def take_report(event: AgentEvent, ctx: Context) -> None:
    await system_agent.take_report(_registry(), event, ctx)


@plugin.handles(to="agent:system")
def ignore_response(response: GeneralResponse) -> None:
    """Ack an acknowledgement: there is nothing to do."""


@plugin.handles(to="system:route")
def route(message: TgMessage, ctx: Context) -> PendingMessage:
    return system_agent.route(_registry(), message, ctx)


@plugin.handles(to="system:route")
def cancel(event: AgentEvent, ctx: Context) -> PendingMessage | GeneralResponse:
    return system_agent.cancel(_registry(), event, ctx)


@plugin.handles(to="agent:worker-*", subscribe=False)
def stand_in(payload: Raw, ctx: Context) -> PendingMessage:
    return system_agent.stand_in(_registry(), payload, ctx)


# Methods


@plugin.method("agents.list", admin=True)
async def list_agents(params: ListParams) -> AgentList:
    """List agents, or those of one status, most recently active first."""
    return agent_methods.list_agents(await _settled_registry(), params)


@plugin.method("agents.show", admin=True)
async def show_agent(params: AgentName) -> AgentShown:
    """Return all that is known of an agent, and the last lines it wrote."""
    return await agent_methods.show(await _settled_registry(), params.client_id)


@plugin.method("agents.spawn", admin=True)
async def spawn_agent(params: SpawnParams) -> SpawnAnswer:
    """Start the agent of a chat, or find it."""
    return await agent_methods.spawn(await _settled_registry(), params)


@plugin.method("agents.stop", admin=True)
async def stop_agent(params: AgentName) -> AgentRecord:
    """Stop an agent's worker; the next message starts it again."""
    return await agent_methods.stop(await _settled_registry(), params.client_id)


@plugin.method("agents.restart", admin=True)
async def restart_agent(params: AgentName) -> AgentRecord:
    """Stop an agent's worker and start it again."""
    return await agent_methods.restart(await _settled_registry(), params.client_id)


@plugin.method("agents.logs", admin=True)
async def agent_logs(params: LogsParams) -> Logs:
    """Return the last lines that an agent's worker wrote, or those after one already seen."""
    return await agent_methods.logs(await _settled_registry(), params)


@plugin.method("agents.export", admin=True)
async def export_sessions(params: ExportParams) -> Exported:
    """Return sessions in the form of the reference's sessions.json, as many as fit at a time."""
    return agent_methods.export(await _settled_registry(), params)
