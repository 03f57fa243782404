"""The turns whose messages wait for a start of the worker: their chat sees that they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from busd_plugins.bub.notices import send_step

if TYPE_CHECKING:
    from busd import UnfinishedTurn
    from busd_plugins.bub.agent import ChatAgent

_MAX_TURNS = 100  # of one agent; a chat that has more is not told of the rest


class WaitingTurns:
    """Those of one agent, without what was said."""

    def __init__(self, agent: ChatAgent) -> None:
        self._agent = agent
        self._turns: dict[str, UnfinishedTurn] = {}
        self._shown: set[str] = set()

    def add(self, turn: UnfinishedTurn) -> None:
        if len(self._turns) < _MAX_TURNS:
            self._turns[turn.message_id] = turn

    def clear(self) -> None:
        """Forget all: the worker is here, or will not come."""
        self._turns.clear()
        self._shown.clear()

    def notify_queued(self) -> None:
        """Show in the chat that its messages wait for a start that is not begun yet."""
        for message_id, turn in self._turns.items():
            if message_id not in self._shown:
                self._shown.add(message_id)
                send_step(self._agent.registry, self._agent.session, turn, "in_progress")

    def notify_launched(self) -> None:
        """Show in the chat that the start has begun."""
        for message_id in self._shown:
            turn = self._turns[message_id]
            send_step(self._agent.registry, self._agent.session, turn, "complete")
        self._shown.clear()
