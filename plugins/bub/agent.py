"""An agent: the one party that a chat talks to, whether its worker runs or not.

While the worker is on the bus, messages go to it and pass nobody here. While it is absent the
plugin stands in for it: subscribed to its address, it keeps what comes, in order, and starts it.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from msgspec import Raw

from busd import (
    Ack,
    AgentEvent,
    Configure,
    GeneralResponse,
    Refuse,
    RouteAssigned,
    event_address,
    write_message,
)
from busd_plugins.bub.chats import check_address
from busd_plugins.bub.pending import Errand, Waiting
from busd_plugins.bub.sessions import HeldMessage, NoSessions, Session, now
from busd_plugins.bub.telling import NOT_STARTED, tell_failure, tell_step
from busd_plugins.bub.worker import Worker

if TYPE_CHECKING:
    from busd import Context
    from busd_plugins.bub.roster import Roster

SYSTEM = "agent:system"
EVENTS = "system:events"
_RETRY_SECONDS = 1.0
_FAREWELL_SECONDS = 2.0  # for a worker to tell its users that it is stopped
_MAX_SETTINGS_BYTES = 64 * 1024  # of one session
_STOPPED = "the agent was stopped by the operator"
_QUEUED = "the agent is started after others; the answer comes then"
_SPAWN_SECONDS = 33.0  # existing bridges wait 35 for a spawn_result


class Agent:
    """Who answers one chat."""

    def __init__(self, roster: Roster, session: Session) -> None:
        self.roster = roster
        self.session = session
        self.is_present = False
        self.waiting = Waiting(roster.held)
        self.worker = Worker(self)
        self.active_at = anyio.current_time()
        self.heard = 0  # how much it had said when we last looked
        self._numbers = count(1)
        self._stops = 0  # by the operator

    @property
    def client_id(self) -> str:
        return self.session.client_id

    # Messages

    def take(self, ctx: Context) -> Errand:
        """Hand a message over now, or keep it until the worker is there; await it for the ack.

        The first half happens at once, so that messages stay in the order they came in.
        """
        return self._take(ctx, is_worth_a_start=True)

    def take_if_up(self, ctx: Context) -> Errand | None:
        """Take a message for a worker that is there, or on its way; none is started for it."""
        if not (self.is_present or self.worker.is_starting):
            return None
        return self._take(ctx, is_worth_a_start=False)

    def _take(self, ctx: Context, *, is_worth_a_start: bool) -> Errand:
        errand = Errand(
            ctx,
            next(self._numbers),
            self._stops,
            self._see_through,
            is_worth_a_start=is_worth_a_start,
        )
        self._place(errand)
        return errand

    def _place(self, errand: Errand) -> None:
        self.note_activity()
        if self.is_present and not self.worker.is_told:  # one that ends would take it in vain
            errand.forward(self.client_id)
            return
        if not (errand.is_worth_a_start or self.worker.is_starting):
            errand.refuse(Refuse(f"{self.client_id} left before it answered"))
            return
        self.waiting.check_room(self.roster.settings.agents.max_waiting, errand)
        self.worker.bring_up(is_wanted=errand.is_worth_a_start)
        self.waiting.add(errand)
        if self.worker.is_queued:
            self.tell_queued()

    async def _see_through(self, errand: Errand) -> Ack:
        """Wait for the ack of a message that was taken; gives it to the worker again if need be."""
        is_kept = False
        try:
            with anyio.move_on_after(self.roster.patience_seconds):
                return await self._carry(errand)
            is_kept = errand.was_queued and errand in self.waiting
            if not is_kept:
                raise Refuse("no answer in time", retry_seconds=_RETRY_SECONDS)
            number = await self._hold(errand)
            self.roster.ctx.tasks.start_soon(self._carry_late, errand, number)
            answer = GeneralResponse("ok", _QUEUED, errand.ctx.message_id)
            return Ack(payload=write_message(answer, sender=SYSTEM))
        except NoSessions as problem:
            is_kept = False
            raise Refuse(str(problem), retry_seconds=_RETRY_SECONDS) from None
        finally:
            if not is_kept:
                self.waiting.discard(errand)  # its sender has been told something else by now

    async def _carry(self, errand: Errand) -> Ack:
        while (ack := await errand.outcome()) is None:
            if errand.stops != self._stops:
                raise Refuse(_STOPPED)
            self._place(errand)  # in front of all that came later
        return ack

    async def _hold(self, errand: Errand) -> int:
        """Write a message down before it is acked: a bus that ends now leaves it to the next."""
        await self.save()  # the next one has to know whose it is
        ctx, turn = errand.ctx, errand.turn
        assert turn is not None  # nothing else is told to wait
        held = HeldMessage(
            client_id=self.client_id,
            place=errand.number,
            message_id=ctx.message_id,
            reply_to=turn.reply_to,
            sender=ctx.sender,
            payload=bytes(ctx.payload),
        )
        return await self.roster.sessions.hold(held)

    async def _carry_late(self, errand: Errand, number: int) -> None:
        """Carry a message on after its sender had an ack; if that fails, the chat is told."""
        try:
            ack = await self._carry(errand)
            reason = "" if ack.success else ack.message
        except Refuse as refusal:
            self.roster.ctx.log.warning("message.late", agent=self.client_id, reason=refusal.reason)
            reason = _STOPPED if refusal.reason == _STOPPED else NOT_STARTED
        finally:
            self.waiting.discard(errand)
        if self.roster.is_stopping:
            return  # the next bus has it
        self.roster.sessions.release(number)
        if reason and errand.turn is not None:
            tell_failure(self.roster, self.session, errand.turn, "worker_failed", reason)

    def tell_queued(self) -> None:
        """Show in the chat that its messages wait for a start that is not begun yet."""
        for errand in self.waiting:
            if errand.turn is not None and not errand.was_queued:
                errand.was_queued = True
                tell_step(self.roster, self.session, errand.turn, "in_progress")

    def tell_launched(self) -> None:
        """Show in the chat that the start has begun."""
        for errand in self.waiting:
            if errand.turn is not None and errand.was_queued:
                tell_step(self.roster, self.session, errand.turn, "complete")

    def hand_over_waiting(self) -> None:
        """Give the worker what waits for it, unless it is about to end."""
        if not self.worker.is_told:
            for errand in self.waiting.take_all():
                errand.forward(self.client_id)

    def refuse_waiting(self, refusal: Refuse) -> None:
        """Tell all who wait that the worker will not come."""
        for errand in self.waiting.take_all():
            errand.refuse(refusal)

    async def ensure_running(self) -> None:
        """Wait until the worker is on the bus; raises Refuse saying why if it will not be.

        One that waits for its turn to start is not refused: its status is `spawning` then.
        """
        if not self.is_present or self.worker.is_told:
            seconds = min(self.roster.patience_seconds, _SPAWN_SECONDS)
            await self.worker.bring_up(is_wanted=True).wait(seconds)

    async def stop(self) -> None:
        """End the worker because the operator wants so; all who wait for an answer are told."""
        self._stops += 1
        await self.worker.stop(self._say_farewell)

    async def _say_farewell(self) -> None:
        """Have the worker end its turns: what it has acked, only it knows."""
        if not self.is_present:
            return
        data = Raw(msgspec.json.encode({"reason": _STOPPED}))
        with anyio.move_on_after(_FAREWELL_SECONDS):
            await self.roster.ctx.send(
                self.client_id, AgentEvent("turn.cancel", data), sender=SYSTEM
            )

    # Presence

    def joined(self) -> None:
        """Give the worker, in this very moment, what waits for it: nothing may overtake that."""
        if self.is_present:
            return  # a second connection of the same name
        self.is_present = True
        ctx = self.roster.ctx
        # First: else we would take what we send it now, and send it once more.
        ctx.unsubscribe(self.client_id)
        ctx.post(self.client_id, self._configuration(), sender=SYSTEM)
        self.hand_over_waiting()
        self.note_activity()
        self.worker.joined()
        assigned = RouteAssigned(chat_id=self.session.chat_id, agent_id=self.client_id)
        for address in (event_address(self.session.talkto), EVENTS):
            ctx.post(address, assigned, sender=SYSTEM)

    def left(self) -> None:
        """Stand in for the worker from this very moment on."""
        if not self.is_present:
            return
        self.is_present = False
        self.roster.ctx.subscribe(self.client_id)
        self.worker.changed()
        if self.waiting:
            self.worker.bring_up(is_wanted=True)  # came while it was told to end
        elif self.worker.state.is_expected:
            self.worker.bring_up(is_wanted=False)  # it may come back: somebody has to wait for it

    def configure(self, wanted: Configure, *, has_worker_heard: bool = False) -> None:
        """Change where the answers go, and named settings; a setting that is null is removed.

        The session's record owns both: a worker gets them at its start and whenever it joins.
        """
        changes: dict[str, Any] = {}
        if wanted.talkto:
            check_address(wanted.talkto)
            changes["talkto"] = wanted.talkto
        if wanted.settings:
            merged = self.session.settings | wanted.settings
            changes["settings"] = {name: it for name, it in merged.items() if it is not None}
            if len(msgspec.json.encode(changes["settings"])) > _MAX_SETTINGS_BYTES:
                raise Refuse(f"configure: settings over {_MAX_SETTINGS_BYTES} bytes")
        self.note(**changes)
        if self.is_present and not has_worker_heard:
            self.roster.ctx.post(self.client_id, wanted, sender=SYSTEM)

    def _configuration(self) -> Configure:
        configuration = Configure(talkto=self.session.talkto)
        if self.session.settings:
            configuration.settings = self.session.settings
        return configuration

    # What is known of it

    @property
    def is_outdated(self) -> bool:
        """Its worker runs with other settings than those of now."""
        table = self.session.table
        return self.worker.state.is_expected and table not in ("", self.roster.table_of(self))

    async def save(self, **changes: Any) -> None:
        """Change the record, written down before it is true; raises NoSessions."""
        await self.roster.sessions.save(msgspec.structs.replace(self.session, **changes))
        self.note(**changes)  # onto what else has changed meanwhile

    def note(self, **changes: Any) -> None:
        """Change the record; it is written soon."""
        self.session = msgspec.structs.replace(self.session, **changes)
        if self.client_id in self.roster.sessions.known:
            self.roster.sessions.note(self.session)

    def note_activity(self) -> None:
        self.active_at = anyio.current_time()
        self.session = msgspec.structs.replace(self.session, last_activity=now())

    def announce(self, event: str, reason: str = "", last_lines: tuple[str, ...] = ()) -> None:
        """Tell whoever listens at system:events what happened."""
        self.roster.announce(self.session, event, reason, last_lines)
