"""A lane: what waits for one chat, in order; and the turns that are shown there."""

from __future__ import annotations

from collections import deque
from math import inf

import anyio

from busd.bridge.live import LiveTurn
from busd.bridge.messages import Reply
from busd.errors import Refuse

TURN_SECONDS = 900.0  # a turn of which nothing was heard for so long is forgotten


class WaitingReply:
    """A reply until it is posted or refused; several deliveries of it may wait for that."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.done = anyio.Event()
        self.refusal: Refuse | None = None

    def settle(self, refusal: Refuse | None = None) -> None:
        self.refusal = refusal
        self.done.set()


class Shown:
    """A live turn, and when it is to be shown."""

    def __init__(self, live: LiveTurn) -> None:
        self.live = live
        self.is_due = True  # something has changed
        self.has_ended = False  # shown once more, then forgotten
        self.heard_at = anyio.current_time()
        self.shown_at = -inf

    def due_at(self, show_seconds: float, refresh_seconds: float) -> float:
        """Return when to show it."""
        if self.is_due or self.has_ended:
            return self.shown_at + show_seconds
        if self.live.is_working and refresh_seconds > 0:
            return self.shown_at + max(refresh_seconds, show_seconds)
        return inf


class Lane:
    """The replies and turns of one chat."""

    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id
        self.waiting: deque[WaitingReply] = deque()
        self.turns: dict[str, Shown] = {}  # in the order they began
        self.free_at = 0.0  # the earliest time of the next post
        self.changed = anyio.Event()
        self.show_scope: anyio.CancelScope | None = None

    def wake(self) -> None:
        self.changed.set()

    def next_due(self, show_seconds: float, refresh_seconds: float) -> tuple[float, Shown | None]:
        """Return the turn that is to be shown next, and when."""
        due = [(each.due_at(show_seconds, refresh_seconds), each) for each in self.turns.values()]
        return min(due, key=lambda pair: pair[0], default=(inf, None))

    def forget_silent(self) -> None:
        """Forget turns of which nothing was heard for long."""
        now = anyio.current_time()
        for turn, shown in list(self.turns.items()):
            if now - shown.heard_at >= TURN_SECONDS:
                del self.turns[turn]

    def end_turns(self, turn: str) -> None:
        """End a turn that was answered, and those before it: an agent answers in order."""
        if turn not in self.turns:
            return
        for name in list(self.turns):
            shown = self.turns[name]
            if name == turn:
                shown.live.is_working = False
                del self.turns[name]
                return
            self.end_unanswered(name)

    def end_unanswered(self, turn: str) -> None:
        """End a turn that gets no reply; what shows it is shown a last time."""
        shown = self.turns.get(turn)
        if shown is None:
            return
        shown.live.is_working = False
        if shown.live.draft or self.show_scope is not None:  # it may just be posting one
            shown.has_ended = shown.is_due = True
            self.wake()
        else:
            del self.turns[turn]
