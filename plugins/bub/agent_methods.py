"""The operator's methods: which agents there are, and to start, stop and read them."""

from __future__ import annotations

from heapq import nlargest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from busd import Refuse, SpawnRequest, as_many_as_fit, now
from busd.supervise import LogLine
from busd_plugins.bub.agent import ChatAgent
from busd_plugins.bub.chats import requested_chat
from busd_plugins.bub.sessions import FORMAT_VERSION, Session, Status
from busd_plugins.bub.system_agent import plugin, settled_registry

if TYPE_CHECKING:
    from busd_plugins.bub.registry import Registry

_SHOWN_LINES = 20
_MAX_LINES = 1_000


class ListParams(msgspec.Struct):
    """`limit`: how many at most, those that were active last."""

    status: Status | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000


class AgentName(msgspec.Struct, rename="camel"):
    client_id: str


class SpawnParams(msgspec.Struct, rename="camel"):
    chat_id: str
    channel: str
    channel_type: str


class LogsParams(msgspec.Struct, rename="camel"):
    """`after`: the id of a line that was seen already."""

    client_id: str
    lines: Annotated[int, Meta(ge=1, le=_MAX_LINES)] = 100
    after: str | None = None


class AgentRecord(msgspec.Struct, rename="camel", kw_only=True):
    """A session, and what is known of its worker now."""

    client_id: str
    chat_id: str
    channel: str
    channel_type: str
    talkto: str
    workspace: str
    systemd_unit: str
    status: str
    created_at: str
    last_activity: str
    stopped_at: str | None
    spawner: str
    log: str
    pid: int | None
    limits: dict[str, str]
    waiting: int  # messages that are kept for it and not answered
    outdated: bool  # its worker runs with older settings than those of now


class AgentList(msgspec.Struct):
    """`total`: how many there are, listed or not."""

    agents: list[AgentRecord]
    total: int


class AgentShown(msgspec.Struct, rename="camel"):
    agent: AgentRecord
    last_lines: list[str]
    settings: dict[str, Any]


class SpawnAnswer(msgspec.Struct, rename="camel"):
    success: bool
    client_id: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


class Logs(msgspec.Struct):
    lines: list[LogLine]


class ExportParams(msgspec.Struct):
    """`after`: the client id of the last session that was seen already."""

    after: str = ""


class Exported(msgspec.Struct, omit_defaults=True):
    """The reference's sessions.json, spelled as there; `more`: how many come after these."""

    version: str
    updated_at: str
    sessions: dict[str, Session]
    more: int = 0


@plugin.method("agents.list", admin=True)
async def list_agents(asked: ListParams) -> AgentList:
    """List agents, or those of one status, most recently active first."""
    registry = await settled_registry()
    agents = [it for it in registry.agents.values() if asked.status in (None, it.session.status)]
    latest = nlargest(asked.limit, agents, key=lambda it: it.session.last_activity)
    waiting = await registry.ctx.mail.counts("agent:worker-")
    records = (_record_of(agent, waiting) for agent in latest)
    return AgentList(as_many_as_fit(records), len(agents))


@plugin.method("agents.show", admin=True)
async def show(asked: AgentName) -> AgentShown:
    """Return all that is known of an agent, and the last lines it wrote."""
    registry = await settled_registry()
    agent = registry.named(asked.client_id)
    lines = await _lines(registry, agent, _SHOWN_LINES, None)
    return AgentShown(await record_of(agent), [line.text for line in lines], agent.session.settings)


@plugin.method("agents.spawn", admin=True)
async def spawn(asked: SpawnParams) -> SpawnAnswer:
    """Start the agent of a chat, or find it."""
    registry = await settled_registry()
    request = SpawnRequest(
        chat_id=asked.chat_id, channel=asked.channel, channel_type=asked.channel_type
    )
    try:
        agent = registry.agent_of(requested_chat(request, registry.settings.agents.channel_types))
        await agent.ensure_running()
    except Refuse as refusal:
        return SpawnAnswer(success=False, error=refusal.reason)
    return SpawnAnswer(success=True, client_id=agent.client_id, status=agent.session.status)


@plugin.method("agents.stop", admin=True)
async def stop(asked: AgentName) -> AgentRecord:
    """Stop an agent's worker; the next message starts it again."""
    registry = await settled_registry()
    agent = registry.named(asked.client_id)
    await agent.stop()
    return await record_of(agent)


@plugin.method("agents.restart", admin=True)
async def restart(asked: AgentName) -> AgentRecord:
    """Stop an agent's worker and start it again."""
    registry = await settled_registry()
    agent = registry.named(asked.client_id)
    await agent.worker.restart()
    await agent.ensure_running()
    return await record_of(agent)


@plugin.method("agents.logs", admin=True)
async def logs(asked: LogsParams) -> Logs:
    """Return the last lines that an agent's worker wrote, or those after one already seen."""
    registry = await settled_registry()
    lines = await _lines(registry, registry.named(asked.client_id), asked.lines, asked.after)
    if asked.after is not None:
        return Logs(as_many_as_fit(lines))
    return Logs(as_many_as_fit(lines[::-1])[::-1])


@plugin.method("agents.export", admin=True)
async def export(asked: ExportParams) -> Exported:
    """Return sessions in the form of the reference's sessions.json, as many as fit at a time."""
    registry = await settled_registry()
    known = registry.sessions.known
    left = sorted(client_id for client_id in known if client_id > asked.after)
    shown = as_many_as_fit(known[client_id] for client_id in left)
    sessions = {session.client_id: session for session in shown}
    return Exported(FORMAT_VERSION, now(), sessions, len(left) - len(shown))


async def _lines(
    registry: Registry, agent: ChatAgent, count: int, after: str | None
) -> list[LogLine]:
    session = agent.session
    return await registry.logs.read(session.log, Path(session.workspace), count, after)


async def record_of(agent: ChatAgent) -> AgentRecord:
    return _record_of(agent, await agent.registry.ctx.mail.counts(agent.client_id))


def _record_of(agent: ChatAgent, waiting: dict[str, int]) -> AgentRecord:
    session, running = agent.session, agent.worker.running
    shown = set(Session.__struct_fields__) & set(AgentRecord.__struct_fields__)
    return AgentRecord(
        **{name: getattr(session, name) for name in shown},
        pid=running.pid if running else None,
        limits=running.limits if running else {},
        waiting=waiting.get(agent.client_id, 0),
        outdated=agent.is_outdated,
    )
