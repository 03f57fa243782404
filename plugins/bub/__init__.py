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
from busd_plugins.bub.pending import Errand
from busd_plugins.bub.roster import Roster

plugin = Plugin("bub", version="1.0")
_rosters: list[Roster] = []  # the one of the bus that runs us


def _roster() -> Roster:
    if not _rosters:
        raise Refuse("the agents are not ready", retry_seconds=1)
    return _rosters[0]


async def _settled_roster() -> Roster:
    roster = _roster()
    await roster.is_settled.wait()
    return roster


@plugin.on_start
async def start(ctx: Context) -> None:
    roster = Roster(ctx)
    await roster.open()
    _rosters.append(roster)
    ctx.tasks.start_soon(roster.settle)
    ctx.tasks.start_soon(maintenance.write_sessions, roster)
    ctx.tasks.start_soon(maintenance.stop_idle_workers, roster)
    ctx.tasks.start_soon(maintenance.forget_old_agents, roster)
    ctx.tasks.start_soon(maintenance.renew_workers, roster)


@plugin.on_stop
async def stop(ctx: Context) -> None:
    roster = _rosters.pop()
    await roster.close()


@plugin.on_reload
async def reload(ctx: Context) -> None:
    for roster in _rosters:
        await roster.reload()


@plugin.on_peer_joined
def joined(name: str, ctx: Context) -> None:
    for roster in _rosters:
        roster.joined(name)


@plugin.on_peer_left
def left(name: str, ctx: Context) -> None:
    for roster in _rosters:
        roster.left(name)


@plugin.checks
def check(sender: str, type_name: str) -> str | None:
    return chats.refusal_of(sender, type_name)


@plugin.names_speakers
def speakers(sender: str, type_name: str, payload: Raw) -> list[str]:
    return chats.speakers_of(sender, type_name, payload)


@plugin.checks_names
def check_name(name: str, identity: Identity) -> str | None:
    for roster in _rosters:
        return roster.refusal_of(name, identity)
    return None


# Messages


@plugin.handles(to=("system:spawn", "agent:system"))
async def spawn(request: SpawnRequest | Refuse, ctx: Context) -> Ack:
    return await system_agent.spawn(_roster(), request, ctx)


@plugin.handles(to="agent:system")
async def configure(wanted: Configure, ctx: Context) -> None:
    await system_agent.configure(_roster(), wanted, ctx)


@plugin.handles(to="agent:system")
async def take_report(event: AgentEvent, ctx: Context) -> None:
    await system_agent.take_report(_roster(), event, ctx)


@plugin.handles(to="agent:system")
def ignore_response(response: GeneralResponse) -> None:
    """Ack an acknowledgement: there is nothing to do."""


@plugin.handles(to="system:route")
def route(message: TgMessage, ctx: Context) -> Errand:
    return system_agent.route(_roster(), message, ctx)


@plugin.handles(to="system:route")
def cancel(event: AgentEvent, ctx: Context) -> Errand | GeneralResponse:
    return system_agent.cancel(_roster(), event, ctx)


@plugin.handles(to="agent:worker-*", subscribe=False)
def stand_in(payload: Raw, ctx: Context) -> Errand:
    return system_agent.stand_in(_roster(), payload, ctx)


# Methods


@plugin.method("agents.list", admin=True)
async def list_agents(params: ListParams) -> AgentList:
    """Name the agents that are known, or those of one status; the last active ones first."""
    return agent_methods.list_agents(await _settled_roster(), params)


@plugin.method("agents.show", admin=True)
async def show_agent(params: AgentName) -> AgentShown:
    """Give all that is known of an agent, and the last lines it wrote."""
    return await agent_methods.show(await _settled_roster(), params.client_id)


@plugin.method("agents.spawn", admin=True)
async def spawn_agent(params: SpawnParams) -> SpawnAnswer:
    """Start the agent of a chat, or find it."""
    return await agent_methods.spawn(await _settled_roster(), params)


@plugin.method("agents.stop", admin=True)
async def stop_agent(params: AgentName) -> AgentRecord:
    """Stop an agent's worker; the next message starts it again."""
    return await agent_methods.stop(await _settled_roster(), params.client_id)


@plugin.method("agents.restart", admin=True)
async def restart_agent(params: AgentName) -> AgentRecord:
    """Stop an agent's worker and start it again."""
    return await agent_methods.restart(await _settled_roster(), params.client_id)


@plugin.method("agents.logs", admin=True)
async def agent_logs(params: LogsParams) -> Logs:
    """Give the last lines that an agent's worker wrote, or those after one already seen."""
    return await agent_methods.logs(await _settled_roster(), params)


@plugin.method("agents.export", admin=True)
async def export_sessions(params: ExportParams) -> Exported:
    """Return sessions in the form of the reference's sessions.json, as many as fit at a time."""
    return agent_methods.export(await _settled_roster(), params)
