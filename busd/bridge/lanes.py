"""Lanes: each chat's replies are posted in order, several chats at the same time.

reply → `take` → lane of its chat → `Posting.deliver` → ack

One task works for one chat, so a turn is never shown while its reply is posted.
"""

from __future__ import annotations

import logging

import anyio
from anyio.abc import TaskGroup

from busd.bridge.lane import Lane, Shown, WaitingReply
from busd.bridge.ledger import LedgerFailed
from busd.bridge.live import LiveTurn
from busd.bridge.messages import Reply
from busd.bridge.posting import Posting, Unavailable
from busd.errors import Refuse

log = logging.getLogger("busd.bridge")

MAX_TURNS = 1_000  # live, in all chats; beyond that the oldest are no longer shown
_FAILED_RETRY_SECONDS = 5.0
_FULL_RETRY_SECONDS = 5.0
_SHOW_GRACE_SECONDS = 5.0  # a reply waits so long for a show that is under way
_MAX_HELD = 10_000
_HELD_SPACING_SECONDS = 0.05  # between replies that were given back together
_IDLE_SECONDS = 60.0  # between two looks at turns that are silent


class Held:
    """A chat that takes no replies for a while: those given back come first."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.count = 0

    def next_seconds(self) -> float:
        """Return when the next reply may be tried again."""
        self.count += 1
        left = max(self.until - anyio.current_time(), 0.0)
        return left + self.count * _HELD_SPACING_SECONDS


class Lanes:
    """The lanes of all chats of a bridge in which something waits or is shown."""

    def __init__(self, posting: Posting, tasks: TaskGroup) -> None:
        self._posting = posting
        self._tasks = tasks
        self._pace = posting.pacer.pace
        self._lanes: dict[str, Lane] = {}
        self._known: dict[str, WaitingReply] = {}  # by origin
        self._bytes = 0  # of these
        self._held: dict[str, Held] = {}
        self._turns: dict[tuple[str, str], None] = {}  # chat and turn, oldest first

    def __len__(self) -> int:
        """Return the number of replies that wait."""
        return len(self._known)

    # Replies

    async def take(self, reply: Reply) -> None:
        """Return when a reply is posted; raise Refuse."""
        waiting = self._known.get(reply.origin) or self._put(reply)
        await waiting.done.wait()
        if waiting.refusal is not None:
            raise waiting.refusal

    def _put(self, reply: Reply) -> WaitingReply:
        if held := self._find_held(reply.chat_id):
            raise Refuse("earlier replies come first", retry_seconds=held.next_seconds())
        lane = self._lanes.get(reply.chat_id)
        if lane is not None and len(lane.waiting) >= self._pace.max_waiting_per_chat:
            raise Refuse("too many replies wait for this chat", retry_seconds=_FULL_RETRY_SECONDS)
        if len(self._known) >= self._pace.max_waiting or self._is_heavy(reply):
            raise Refuse("too many replies wait in this bridge", retry_seconds=_FULL_RETRY_SECONDS)
        waiting = self._known[reply.origin] = WaitingReply(reply)
        self._bytes += reply.size
        lane = self._lane(reply.chat_id)
        lane.waiting.append(waiting)
        if lane.show_scope is not None:
            limit = anyio.current_time() + _SHOW_GRACE_SECONDS
            lane.show_scope.deadline = min(lane.show_scope.deadline, limit)
        return waiting

    def _is_heavy(self, reply: Reply) -> bool:
        """Return whether there is no room for a reply; one alone is always posted."""
        return bool(self._known) and self._bytes + reply.size > self._pace.max_waiting_bytes

    def _find_held(self, chat_id: str) -> Held | None:
        held = self._held.get(chat_id)
        if held is not None and anyio.current_time() >= held.until:
            del self._held[chat_id]
            return None
        return held

    def _settle(self, waiting: WaitingReply, refusal: Refuse | None) -> None:
        self._known.pop(waiting.reply.origin, None)
        self._bytes -= waiting.reply.size
        waiting.settle(refusal)

    def _give_back(self, lane: Lane, refusal: Unavailable) -> None:
        """Let the bus deliver everything that waits in a lane later, in the same order."""
        if len(self._held) >= _MAX_HELD:
            del self._held[next(iter(self._held))]
        held = self._held[lane.chat_id] = Held(anyio.current_time() + refusal.seconds)
        while lane.waiting:
            seconds = held.next_seconds()
            self._settle(lane.waiting.popleft(), Refuse(refusal.reason, retry_seconds=seconds))

    # Turns

    def find_turn(self, chat_id: str, turn: str) -> LiveTurn | None:
        lane = self._lanes.get(chat_id)
        shown = lane.turns.get(turn) if lane else None
        return shown.live if shown else None

    def open_turn(self, live: LiveTurn) -> None:
        """Show a turn from now on."""
        if len(self._turns) >= MAX_TURNS:
            self._forget_ended()
        while len(self._turns) >= MAX_TURNS:
            self.drop_turn(*next(iter(self._turns)))
        self._turns[live.chat_id, live.turn] = None
        self._lane(live.chat_id).turns[live.turn] = Shown(live)

    def touch_turn(self, live: LiveTurn) -> None:
        """Show a turn soon, because something of it has changed."""
        lane = self._lane(live.chat_id)
        if shown := lane.turns.get(live.turn):
            shown.is_due = True
            shown.heard_at = anyio.current_time()

    def drop_turn(self, chat_id: str, turn: str) -> None:
        """Forget a turn without showing it again."""
        self._turns.pop((chat_id, turn), None)
        if lane := self._lanes.get(chat_id):
            lane.turns.pop(turn, None)
            lane.wake()

    def _forget_ended(self) -> None:
        for chat_id, turn in list(self._turns):
            if self.find_turn(chat_id, turn) is None:
                del self._turns[chat_id, turn]

    def end_unanswered(self, chat_id: str, turn: str = "") -> None:
        """End a turn that was cancelled, by default the one that runs."""
        if lane := self._lanes.get(chat_id):
            lane.end_unanswered(turn or next(iter(lane.turns), ""))

    def waiting_prompt(self, chat_id: str) -> LiveTurn | None:
        """Return a turn of a chat that has asked its user something."""
        lane = self._lanes.get(chat_id)
        turns = lane.turns.values() if lane else ()
        return next((each.live for each in turns if each.live.prompt is not None), None)

    # Work

    def _lane(self, chat_id: str) -> Lane:
        """Return the lane of a chat, awake."""
        lane = self._lanes.get(chat_id)
        if lane is None:
            lane = self._lanes[chat_id] = Lane(chat_id)
            self._tasks.start_soon(self._work, lane)
        lane.wake()
        return lane

    async def _work(self, lane: Lane) -> None:
        """Post and show until nothing is left."""
        while lane.waiting or lane.turns or lane.free_at > anyio.current_time():
            lane.changed = anyio.Event()
            if lane.waiting:
                await self._post_next(lane)
                continue
            due_at, shown = lane.next_due(self._pace.show_seconds, self._pace.refresh_seconds)
            if shown is not None and due_at <= anyio.current_time():
                await self._show(lane, shown)
            else:
                until = due_at if lane.turns else lane.free_at
                await self._wait(lane, min(until, anyio.current_time() + _IDLE_SECONDS))
                lane.forget_silent()
        # No await since the loop has looked: whatever comes now finds no lane, and makes one.
        del self._lanes[lane.chat_id]

    async def _wait(self, lane: Lane, until: float) -> None:
        with anyio.move_on_after(until - anyio.current_time()):
            await lane.changed.wait()

    async def _post_next(self, lane: Lane) -> None:
        waiting = lane.waiting[0]
        reply = waiting.reply
        refusal: Refuse | None = None
        unavailable: Unavailable | None = None
        try:
            await self._posting.deliver(lane, reply)
        except Unavailable as problem:
            unavailable = problem
            log.warning("replies to %s wait: %s", reply.chat_id, problem.reason)
        except Refuse as problem:
            refusal = problem
            self._posting.status.refused += 1
            log.warning("reply %s to %s refused: %s", reply.message_id, reply.chat_id, problem)
        except LedgerFailed:
            seconds = _FAILED_RETRY_SECONDS
            unavailable = Unavailable("the bridge cannot record what it posts", seconds)
        except Exception as problem:
            log.exception("reply %s to %s: the bridge has failed", reply.message_id, reply.chat_id)
            reason = f"the bridge has failed ({type(problem).__name__})"
            refusal = Refuse(reason, retry_seconds=_FAILED_RETRY_SECONDS)
        if unavailable is not None:
            self._give_back(lane, unavailable)
            return
        lane.waiting.popleft()
        if not reply.prompt_id and (refusal is None or refusal.retry_seconds is None):
            lane.end_turns(reply.reply_to)
        self._settle(waiting, refusal)

    async def _show(self, lane: Lane, shown: Shown) -> None:
        """Show a turn, unless replies need the place; the latest state is shown then."""
        if not self._posting.pacer.is_free:
            await self._wait(lane, anyio.current_time() + max(self._pace.show_seconds, 0.05))
            return
        await self._posting.show(lane, shown)
        if shown.has_ended and not shown.is_due:
            lane.turns.pop(shown.live.turn, None)
