"""Agents that have mail and whose workers cannot start now: they start as soon as there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from busd_plugins.bub.agent import ChatAgent
    from busd_plugins.bub.registry import Registry

_PAUSE_SECONDS = 5.0  # between two looks, unless a worker ends


class StartQueue:
    """The agents, in the order in which they asked."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._waiting: dict[str, None] = {}
        self._wakes = anyio.Event()

    def __contains__(self, client_id: str) -> bool:
        return client_id in self._waiting

    def add(self, agent: ChatAgent) -> None:
        """Start an agent's worker when there is room, if its mail waits until then."""
        self._waiting[agent.client_id] = None

    def look(self) -> None:
        """Find out whether there is room now: a worker has ended."""
        if self._waiting:
            self._wakes.set()

    async def run(self) -> None:
        """Start workers whenever there is room for some."""
        await self._registry.is_settled.wait()
        while True:
            self._start_some()
            with anyio.move_on_after(_PAUSE_SECONDS):
                await self._wakes.wait()
            self._wakes = anyio.Event()

    def _start_some(self) -> None:
        room = self._registry.room_left
        for client_id in list(self._waiting):
            if room <= 0:
                return
            del self._waiting[client_id]
            agent = self._registry.agents.get(client_id)
            if agent is not None and agent.has_mail and not agent.is_present:
                room -= not agent.worker.state.has_place
                agent.start_for_mail()
