"""The registry: all agents that are known, who of them is on the bus, and what they share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from msgspec import Raw

from busd import AgentEvent, Refuse, now
from busd.supervise import Launch, LogReader, Spawners, SpawnFailed
from busd_plugins.bub.agent import EVENTS, ChatAgent
from busd_plugins.bub.chats import Placed
from busd_plugins.bub.notices import SYSTEM
from busd_plugins.bub.recovery import deliver_mail, resume_turns
from busd_plugins.bub.sessions import NoSessions, Session, Sessions
from busd_plugins.bub.settings import BubSettings
from busd_plugins.bub.start_queue import StartQueue
from busd_plugins.bub.starting import fingerprint_of, launch_of, supervisor_settings

if TYPE_CHECKING:
    from busd import Context, Identity
    from busd.supervise import Spawner, SupervisedProcess

_MAX_KNOWN = 50_000  # agents, running or not
_MAX_UNKNOWN = 5  # remembered
_ADOPTED_AT_ONCE = 20
_ANSWER_SECONDS = 1.0  # for the disk, and to answer


class Registry:
    """The agents by client id."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.state = ctx.state
        self.sessions = Sessions(ctx.state)
        self.settings = ctx.own_settings(BubSettings)
        supervisor = supervisor_settings(self.settings.agents)
        self.spawners = Spawners(ctx.state, supervisor, ctx.tasks.start_soon)
        self.logs = LogReader()
        self.agents: dict[str, ChatAgent] = {}
        self.start_queue = StartQueue(self)
        self.is_settled = anyio.Event()  # it is known which workers of an earlier bus still run
        self.reloaded = anyio.Event()  # the settings may not be those that workers run with
        self.is_stopping = False
        self._unknown: dict[str, float] = {}  # agents that are none of ours, and when they joined
        self._cannot_write = False
        self._starting = anyio.CapacityLimiter(1)

    # Who is known

    async def open(self) -> None:
        """Read the sessions of an earlier bus."""
        await self.sessions.open()
        for session in list(self.sessions.known.values()):
            self._add(session)

    async def settle(self) -> None:
        """Adopt the workers that still run; until then nobody is started.

        Then what an earlier bus left undone is taken up.
        """
        at_once = anyio.CapacityLimiter(_ADOPTED_AT_ONCE)
        try:
            async with anyio.create_task_group() as tasks:
                for agent in list(self.agents.values()):
                    if agent.session.status in ("spawning", "running"):
                        tasks.start_soon(self._adopt, agent, at_once)
        finally:
            self.is_settled.set()
        self.ctx.tasks.start_soon(resume_turns, self)
        self.ctx.tasks.start_soon(deliver_mail, self)

    async def _adopt(self, agent: ChatAgent, at_once: anyio.CapacityLimiter) -> None:
        async with at_once:
            running = await self._find_running(agent)
        if running is not None:
            agent.worker.adopt(running)
        else:
            agent.worker.lost()
            agent.note(is_interrupted=True)
            self.disconnect_others(agent)

    async def _find_running(self, agent: ChatAgent) -> SupervisedProcess | None:
        """Return the worker of an agent that an earlier bus started; None if it has ended.

        A bus that was killed in the moment of a start has not written who started what.
        """
        session = agent.session
        try:
            if session.spawner:
                spawner = await self.spawners.get(session.spawner)
            else:
                spawner = await self.spawner_of(session.channel)
            running = await spawner.adopt(session.client_id, session.systemd_unit)
        except SpawnFailed as problem:
            self.ctx.log.warning("agent.not_adopted", agent=agent.client_id, reason=str(problem))
            return None
        if running is not None:
            agent.note(systemd_unit=running.unit, spawner=spawner.name, log=running.log)
        return running

    def agent_of(self, placed: Placed) -> ChatAgent:
        """Return the agent of a chat; a new one if it has none yet."""
        chat = placed.chat
        agent = self.agents.get(chat.agent_id)
        if agent is None:
            if len(self.agents) >= _MAX_KNOWN:
                raise Refuse(f"no room for another agent: {_MAX_KNOWN} are known", retry_seconds=60)
            return self._add(_new_session(placed))
        if (agent.session.channel, agent.session.chat_id) != (chat.channel, chat.chat_id):
            raise Refuse(f"{chat.agent_id} is the agent of another chat")
        return agent

    def named(self, client_id: str) -> ChatAgent:
        """Return a known agent; raise Refuse if there is none of that name."""
        agent = self.agents.get(client_id)
        if agent is None:
            raise Refuse(f"no agent is called {client_id[:80]}")
        return agent

    def _add(self, session: Session) -> ChatAgent:
        agent = self.agents[session.client_id] = ChatAgent(self, session)
        agent.is_present = self.ctx.is_present(session.client_id)
        return agent

    def forget_unless_kept(self, agent: ChatAgent) -> None:
        """Forget an agent that never came to be: no session of it was written."""
        is_needed = agent.is_awaited or agent.worker.is_starting
        if agent.client_id not in self.sessions.known and not is_needed:
            self.forget(agent)

    def forget(self, agent: ChatAgent) -> None:
        if self.agents.get(agent.client_id) is agent:
            del self.agents[agent.client_id]

    # Who comes and goes

    def joined(self, name: str) -> None:
        agent = self.agents.get(name)
        if agent is not None:
            agent.joined()
        elif name.startswith("agent:"):
            self._unknown.pop(name, None)
            self._unknown[name] = anyio.current_time()
            if len(self._unknown) > _MAX_UNKNOWN:
                del self._unknown[next(iter(self._unknown))]

    def refusal_of(self, name: str, identity: Identity) -> str | None:
        """Return why a connecting peer may not use a name: it belongs to a worker of ours.

        It is from the first start of the worker until its session is forgotten.
        """
        agent = self.agents.get(name)
        if agent is None or name not in self.sessions.known:
            return None
        if agent.worker.may_be(identity):
            return None
        return f"{name} is the name of a worker of this bus: only its own processes may have it"

    def disconnect_others(self, agent: ChatAgent) -> None:
        """Disconnect peers that took the name of a worker before workers could be identified."""
        name = agent.client_id
        reason = f"{name} is the name of a worker of this bus"
        self.ctx.dismiss(name, lambda identity: self.refusal_of(name, identity) is None, reason)

    def unknown_since(self, moment: float) -> list[str]:
        """List the agents that joined since then and are none of ours."""
        return [name for name, joined in self._unknown.items() if joined >= moment]

    def left(self, name: str) -> None:
        agent = self.agents.get(name)
        if agent is not None and not self.is_stopping:
            agent.left()

    # What a start needs

    async def spawner_of(self, channel: str) -> Spawner:
        """Return the spawner for the workers of a channel; raise SpawnFailed if there is none."""
        return await self.spawners.get(self.settings.worker(channel).spawner)

    def room_to_start(self) -> anyio.CapacityLimiter:
        """Return what lets only so many workers start at a time."""
        limit = self.settings.agents.max_starting or 2 * (os.cpu_count() or 1)
        self._starting.total_tokens = limit
        return self._starting

    def check_room(self) -> None:
        """Raise Refuse if as many workers run, or wait for their start, as there may be."""
        limit = self.settings.agents.max_workers
        if self.room_left <= 0:
            raise Refuse(
                f"no room for another worker: {limit} run or start (setting agents.max_workers)",
                retry_seconds=5,
            )

    @property
    def room_left(self) -> int:
        """How many more workers there may be."""
        taken = sum(agent.worker.state.has_place for agent in self.agents.values())
        return self.settings.agents.max_workers - taken

    def launch_of(self, agent: ChatAgent) -> Launch:
        """Return what its spawner needs to know."""
        settings = self.settings.worker(agent.session.channel)
        return launch_of(agent.session, settings, self.settings.agents, self.ctx)

    def table_of(self, agent: ChatAgent) -> str:
        """Return the fingerprint of the settings that its worker should have now."""
        return fingerprint_of(self.settings.worker(agent.session.channel))

    async def reload(self) -> None:
        """Apply settings that were read again."""
        self.settings = self.ctx.own_settings(BubSettings)
        settings = supervisor_settings(self.settings.agents)
        for name, problem in await self.spawners.reload(settings):
            self.ctx.log.warning("agents.not_reloaded", spawner=name, reason=problem)
        self.reloaded.set()

    # What is said and written

    def announce(
        self, session: Session, event: str, reason: str, last_lines: tuple[str, ...]
    ) -> None:
        """Send an `agent_event` to its subscribers."""
        data: dict[str, Any] = {
            "agent_id": session.client_id,
            "chat_id": session.chat_id,
            "channel": session.channel,
        }
        if reason:
            data["reason"] = reason
        if last_lines:
            data["last_lines"] = last_lines
        self.ctx.log.info(f"agent.{event}", agent=session.client_id, reason=reason)
        if self.is_stopping:
            return  # so is the bus: it carries nothing any more
        said = AgentEvent(event=event, data=Raw(msgspec.json.encode(data)))
        self.ctx.post(EVENTS, said, sender=SYSTEM)

    def note_activity(self) -> None:
        """Store when each agent was last active, but not with every message."""
        for agent in self.agents.values():
            known = self.sessions.known.get(agent.client_id)
            if known is not None and known is not agent.session:
                self.sessions.note(agent.session)

    @property
    def patience_seconds(self) -> float:
        """How long a request may wait for a worker; then it is answered with what is known."""
        seconds = self.ctx.limits.handler_seconds
        return max(seconds - _ANSWER_SECONDS, seconds / 2)

    @property
    def answer_seconds(self) -> float:
        """How long a request may take: a little less than the host allows, so that we answer."""
        return self.ctx.limits.handler_seconds * 0.95

    async def flush(self) -> None:
        """Write what was noted; a disk without room is said once, and tried again later."""
        try:
            await self.sessions.flush()
            self._cannot_write = False
        except NoSessions as problem:
            if not self._cannot_write:
                self.ctx.log.warning("sessions.failed", reason=str(problem))
            self._cannot_write = True

    async def close(self) -> None:
        """Stop or release all workers, as configured, and store their state."""
        self.is_stopping = True
        is_over = self.settings.agents.when_bus_stops == "stop"
        for agent in self.agents.values():
            if is_over and agent.worker.state.takes_room:
                agent.note(is_interrupted=True)
        await self.spawners.close()
        for agent in self.agents.values():
            if is_over:
                agent.worker.lost()
        self.note_activity()
        try:
            await self.sessions.close()
        except NoSessions as problem:
            self.ctx.log.warning("sessions.failed", reason=str(problem))


def _new_session(placed: Placed) -> Session:
    moment = now()
    return Session(
        client_id=placed.chat.agent_id,
        chat_id=placed.chat.chat_id,
        channel=placed.chat.channel,
        channel_type=placed.channel_type,
        talkto=placed.talkto,
        workspace="",
        status="stopped",
        created_at=moment,
        last_activity=moment,
    )
