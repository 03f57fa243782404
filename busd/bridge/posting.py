"""Posting: one reply at a time becomes parts, which are recorded, posted and recorded again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from math import inf

import anyio
from anyio.lowlevel import checkpoint

from busd.bridge.lane import Lane, Shown
from busd.bridge.ledger import Begun, Key, Ledger, LedgerFailed
from busd.bridge.live import LiveError, LivePrompt, LiveTurn
from busd.bridge.messages import Part, Reply
from busd.bridge.pacer import Pacer
from busd.bridge.refusals import MaybePosted, SlowDown
from busd.bridge.status import BridgeStatus
from busd.errors import Refuse

log = logging.getLogger("busd.bridge")

Split = Callable[[Reply], Iterable[Part]]
Post = Callable[[Part], Awaitable[str]]
Show = Callable[[LiveTurn], Awaitable[None]]
_DISK_PAUSE_SECONDS = 1.0
_SHORTEST_PAUSE_SECONDS = 0.05


class Unavailable(Exception):
    """A chat can take nothing for longer than the patience of the bridge."""

    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(reason)
        self.reason = reason
        self.seconds = seconds


class Posting:
    """Calls the functions of the program, and keeps the ledger."""

    def __init__(
        self, ledger: Ledger, pacer: Pacer, status: BridgeStatus, split: Split, post: Post
    ) -> None:
        self.ledger = ledger
        self.pacer = pacer
        self._pace = pacer.pace
        self.status = status
        self._split = split
        self._post = post
        self.show_function: Show | None = None
        self._at_once = anyio.CapacityLimiter(max(self._pace.parallel, 1))
        self._under_way: set[anyio.CancelScope] = set()
        self._last_at = inf  # the bridge is stopped: what is under way ends then

    def stop(self) -> None:
        """Limit the time of what is under way."""
        self._last_at = anyio.current_time() + self._pace.stop_seconds
        for scope in self._under_way:
            scope.deadline = self._last_at

    @contextmanager
    def _finishing(self) -> Iterator[None]:
        """Let the block finish when the bridge is stopped, within its time."""
        with anyio.CancelScope(shield=True, deadline=self._last_at) as scope:
            self._under_way.add(scope)
            try:
                yield
            finally:
                self._under_way.discard(scope)

    # Replies

    async def deliver(self, lane: Lane, reply: Reply) -> None:
        """Post a reply, unless that was done before; raise Refuse or Unavailable."""
        key = Key("reply", reply.key)
        if await self.ledger.is_done(key):
            return
        turn = Key("draft", (reply.chat_id, reply.reply_to))
        shown = self._shown_key(reply)
        if await self._is_shown(lane, reply, shown):
            await self._keep_trying(lambda: self.ledger.finish(key, [shown]))
            return
        parts = list(self._split(reply))
        for number, part in enumerate(parts, 1):
            part.number, part.total, part.reply = number, len(parts), reply
            if number == 1 and not reply.prompt_id and reply.reply_to:
                part.draft = await self._draft(lane, reply, turn)
            await self._post_part(lane, part)
        done = [_part_key(reply, number) for number in range(1, len(parts) + 1)]
        if not reply.prompt_id:
            done.append(turn)
        await self._keep_trying(lambda: self.ledger.finish(key, done))

    def _shown_key(self, reply: Reply) -> Key:
        if reply.prompt_id:
            return Key("prompt", (reply.chat_id, reply.prompt_id))
        return Key("error", (reply.chat_id, reply.reply_to))

    async def _is_shown(self, lane: Lane, reply: Reply, key: Key) -> bool:
        """Return whether a reply is the text of a prompt or an error that was shown."""
        if self.show_function is None or not (reply.reply_to or reply.prompt_id):
            return False
        shown = lane.turns.get(reply.reply_to)
        about = _shown_by(shown.live, reply) if shown else None
        if shown is None or about is None:
            return bool(await self.ledger.find(key))
        if not about.external_id:
            await self.show(lane, shown)
        return bool(about.external_id)

    async def _draft(self, lane: Lane, reply: Reply, key: Key) -> str:
        shown = lane.turns.get(reply.reply_to)
        return (shown.live.draft if shown else "") or await self.ledger.find(key)

    async def _post_part(self, lane: Lane, part: Part) -> None:
        """Post a part; if the other system cannot take it now, wait and post it again."""
        until = inf
        while True:
            try:
                await self.pacer.wait(lane.free_at, min(until, self._last_moment()))
            except Refuse as pause:
                raise Unavailable(pause.reason, pause.retry_seconds or 0.0) from None
            async with self._at_once:
                refusal = await self._try(lane, part)
            if refusal is None:
                return
            if refusal.retry_seconds is None:
                raise refusal
            until = min(until, self._last_moment())
            seconds = max(refusal.retry_seconds, _SHORTEST_PAUSE_SECONDS)
            if anyio.current_time() + seconds > until:
                raise Unavailable(refusal.reason, seconds)
            log.info("a post to %s is tried again: %s", lane.chat_id, refusal.reason)
            if not isinstance(refusal, SlowDown) or not refusal.everywhere:
                lane.free_at = max(lane.free_at, anyio.current_time() + seconds)

    def _last_moment(self) -> float:
        return anyio.current_time() + self._pace.patience_seconds

    async def _try(self, lane: Lane, part: Part) -> Refuse | None:
        """Try to post a part; return why it was refused. Raise what the program raises else."""
        key = _part_key(part.reply, part.number)
        await checkpoint()  # nothing new is begun when the bridge is stopped
        with self._finishing():
            begun = await self.ledger.begin(key)
            if begun.is_done:
                return None
            self._note_repeat(part, begun)
            try:
                external_id = await self._call_post(part)
            except MaybePosted as unknown:
                return unknown
            except Exception as problem:
                await self._undo(key)
                if isinstance(problem, SlowDown) and problem.everywhere:
                    self.pacer.pause(problem.seconds)
                if isinstance(problem, Refuse):
                    return problem
                raise
            finally:
                lane.free_at = anyio.current_time() + self._pace.per_chat_seconds
            await self._keep_trying(lambda: self.ledger.put(key, external_id))
            self.status.posted += 1
            self.status.note_contact()
            return None
        # Only if the bridge is stopped and the time is up: the part stays begun.
        await anyio.sleep_forever()
        raise AssertionError("unreachable")

    async def _call_post(self, part: Part) -> str:
        with anyio.move_on_after(self._pace.post_seconds):
            return str(await self._post(part))
        raise MaybePosted(f"no outcome of a post within {self._pace.post_seconds:g} seconds")

    def _note_repeat(self, part: Part, begun: Begun) -> None:
        part.is_repeat = begun.is_repeat
        if part.is_repeat:
            self.status.repeated += 1
            log.warning(
                "part %d of %d of reply %s to %s is posted again: the outcome is not known",
                *(part.number, part.total, part.reply.message_id, part.chat_id),
            )

    async def _undo(self, key: Key) -> None:
        try:
            await self.ledger.forget(key)
        except LedgerFailed:
            log.warning("a part that was not posted will be posted as a repetition")

    async def _keep_trying(self, write: Callable[[], Awaitable[None]]) -> None:
        """Record what has happened; while the disk is full, wait."""
        while True:
            try:
                return await write()
            except LedgerFailed:
                await anyio.sleep(_DISK_PAUSE_SECONDS)

    # Turns

    async def show(self, lane: Lane, shown: Shown) -> None:
        """Show the latest state of a turn, and record what the program has posted for that."""
        assert self.show_function is not None
        await checkpoint()  # nothing new is begun when the bridge is stopped
        if shown.live.is_cut and not shown.live.draft:
            shown.live.draft = await self._recorded_draft(shown.live)
        # What comes while it is shown is shown next.
        live = shown.live.snapshot()
        before = _external_ids(live)
        shown.is_due = False
        with self._finishing(), anyio.move_on_after(self._pace.post_seconds) as lane.show_scope:
            try:
                await self.show_function(live)
            except SlowDown as pause:
                shown.is_due = True
                if pause.everywhere:
                    self.pacer.pause(pause.seconds)
            except Refuse as refusal:
                log.info("a turn in %s is not shown: %s", lane.chat_id, refusal.reason)
            except Exception:
                log.exception("a turn in %s cannot be shown", lane.chat_id)
        lane.show_scope = None
        shown.live.draft = live.draft
        shown.shown_at = anyio.current_time()
        self.pacer.take()
        with self._finishing():
            await self._record_shown(before, _external_ids(live))

    async def _recorded_draft(self, live: LiveTurn) -> str:
        """Return the draft of a process before this one."""
        try:
            return await self.ledger.find(Key("draft", (live.chat_id, live.turn)))
        except LedgerFailed:
            return ""

    async def _record_shown(self, before: dict[Key, str], after: dict[Key, str]) -> None:
        try:
            for key, external_id in after.items():
                if external_id and before.get(key) != external_id:
                    await self.ledger.put(key, external_id)
            gone = [key for key, external_id in before.items() if external_id and not after[key]]
            if gone:
                await self.ledger.forget(*gone)
        except LedgerFailed:
            pass  # it is known until this process ends


def _part_key(reply: Reply, number: int) -> Key:
    return Key("part", (*reply.key, str(number)))


def _shown_by(live: LiveTurn, reply: Reply) -> LivePrompt | LiveError | None:
    """Return the prompt or error whose text a reply may be."""
    if not reply.prompt_id:
        return live.error
    return live.prompt if live.prompt and live.prompt.id == reply.prompt_id else None


def _external_ids(live: LiveTurn) -> dict[Key, str]:
    found = {Key("draft", (live.chat_id, live.turn)): live.draft}
    if live.prompt is not None:
        found[Key("prompt", (live.chat_id, live.prompt.id))] = live.prompt.external_id
    if live.error is not None:
        found[Key("error", (live.chat_id, live.turn))] = live.error.external_id
    return found
