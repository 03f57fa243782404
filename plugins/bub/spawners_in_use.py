"""The spawners in use: each is opened when the first worker wants it, and left at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from busd_plugins.bub.spawner import Running, Spawner, SpawnFailed
from busd_plugins.bub.spawners import choose_spawner, spawner_name

if TYPE_CHECKING:
    from busd_plugins.bub.agent import Agent
    from busd_plugins.bub.roster import Roster


class SpawnersInUse:
    """Spawners by their own name.

    Each lives in a task of its own: what a spawner opens it must close in the same task.
    """

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._open: dict[str, _OpenSpawner] = {}
        self._names: dict[str, str] = {}  # what `auto` means here, once found out
        self._is_asking = anyio.Lock()

    async def of(self, channel: str) -> Spawner:
        """Give the spawner for the workers of a channel; raises SpawnFailed if there is none."""
        wanted = self._roster.worker_settings(channel).spawner
        return await self._named(wanted)

    async def adopt(self, agent: Agent) -> Running | None:
        """Take over the worker of an agent; None if it is no more.

        A bus that was killed in the moment of a start has not written who started what.
        """
        session = agent.session
        wanted = session.spawner or self._roster.worker_settings(session.channel).spawner
        try:
            spawner = await self._named(wanted)
            running = await spawner.adopt(session.client_id, session.systemd_unit)
        except SpawnFailed as problem:
            self._roster.ctx.log.warning(
                "agent.not_adopted", agent=session.client_id, reason=str(problem)
            )
            return None
        if running is not None:
            agent.note(systemd_unit=running.unit, spawner=spawner.name, log=running.log)
        return running

    async def _named(self, wanted: str) -> Spawner:
        async with self._is_asking:
            if wanted not in self._names:
                self._names[wanted] = await spawner_name(wanted)
        name = self._names[wanted]
        if name not in self._open:
            opened = self._open[name] = _OpenSpawner()
            self._roster.ctx.tasks.start_soon(self._keep_open, name, opened)
        opened = self._open[name]
        await opened.is_tried.wait()
        if opened.spawner is None:
            if self._open.get(name) is opened:
                del self._open[name]  # the next one may have more luck
            raise SpawnFailed(opened.problem)
        return opened.spawner

    async def _keep_open(self, name: str, opened: _OpenSpawner) -> None:
        try:
            chosen = await choose_spawner(name, self._roster.settings.agents, self._roster.state)
            async with chosen as spawner:
                opened.spawner = spawner
                opened.is_tried.set()
                await opened.is_over.wait()
        except SpawnFailed as problem:
            opened.problem = str(problem)
        finally:
            opened.is_tried.set()
            opened.is_closed.set()

    async def reload(self) -> None:
        """Have the open spawners go by the settings of now."""
        for name, opened in list(self._open.items()):
            if opened.spawner is not None:
                for problem in await opened.spawner.reload(self._roster.settings.agents):
                    self._roster.ctx.log.warning(
                        "agents.not_reloaded", spawner=name, reason=problem
                    )

    async def close(self) -> None:
        """Leave all spawners: they end their workers, or leave them to the next bus."""
        for opened in self._open.values():
            opened.is_over.set()
        for opened in list(self._open.values()):
            await opened.is_closed.wait()


class _OpenSpawner:
    def __init__(self) -> None:
        self.spawner: Spawner | None = None
        self.problem = "the spawner could not be opened"
        self.is_tried = anyio.Event()
        self.is_over = anyio.Event()
        self.is_closed = anyio.Event()
