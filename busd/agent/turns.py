"""Turns: one runs, others wait; and what a message that comes meanwhile does."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Literal

from busd.errors import Refuse

if TYPE_CHECKING:
    from busd.agent.turn import Turn

WhenBusy = Literal["queue", "interrupt", "merge", "reject"]
Admission = Literal["queued", "merged", "interrupts"]
MAX_WAITING = 100
_MAX_MERGED_CHARACTERS = 1024 * 1024
_RETRY_SECONDS = 5.0


class TurnQueue:
    """The turns of one agent, in order.

    `interrupt` and `merge` concern only what one and the same sender wrote: nobody ends another
    one's turn by writing, nor puts words into his.
    """

    def __init__(self, when_busy: WhenBusy) -> None:
        self.when_busy = when_busy
        self.running: Turn | None = None
        self.waiting: deque[Turn] = deque()

    def take(self, turn: Turn) -> Admission:
        """Queue a turn as `when_busy` says; raise Refuse if the agent is busy or the queue full."""
        if self.all():
            match self.when_busy:
                case "reject":
                    raise Refuse("agent is busy with another message", retry_seconds=_RETRY_SECONDS)
                case "merge" if self.waiting and _may_merge(self.waiting[-1], turn):
                    turn.absorb(self.waiting.pop())
                    self.waiting.append(turn)
                    return "merged"
                case "interrupt" if self._interrupt(turn):
                    self.waiting.append(turn)
                    return "interrupts"
        self._check_room()
        self.waiting.append(turn)
        return "queued"

    def _check_room(self) -> None:
        if len(self.waiting) >= MAX_WAITING:
            raise Refuse(
                f"agent is busy: {MAX_WAITING} messages wait already", retry_seconds=_RETRY_SECONDS
            )

    def _interrupt(self, turn: Turn) -> bool:
        """End what the same sender asked for before."""
        earlier = [each for each in self.all() if each.is_of_sender(turn.sender)]
        for each in earlier:
            each.cancel()
        return bool(earlier)

    def all(self) -> list[Turn]:
        """Return the running turn and those that wait, but none whose reply is being delivered."""
        return [each for each in (self.running, *self.waiting) if each and not each.is_ending]

    def start_next(self) -> Turn | None:
        self.running = self.waiting.popleft() if self.waiting else None
        return self.running


def _may_merge(earlier: Turn, turn: Turn) -> bool:
    """Return whether a message may join the one before it: of the same sender, and not too much."""
    size = len(earlier.message.text) + len(turn.message.text)
    has_room = len(earlier.message_ids) < MAX_WAITING and size <= _MAX_MERGED_CHARACTERS
    return has_room and earlier.is_of_sender(turn.sender) and not earlier.failure
