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
    now,
    write_message,
)
from busd_plugins.bub.chats import check_address
from busd_plugins.bub.notices import NOT_STARTED, send_failure, send_step
from busd_plugins.bub.pending import PendingMessage, PendingQueue
from busd_plugins.bub.sessions import HeldMessage, NoSessions, Session
from busd_plugins.bub.worker import Worker

if TYPE_CHECKING:
    from busd import Context
    from busd_plugins.bub.registry import Registry

SYSTEM = "agent:system"
EVENTS = "system:events"
_RETRY_SECONDS = 1.0
_CANCEL_SECONDS = 2.0  # for a worker to tell its users that it is stopped
_MAX_SETTINGS_BYTES = 64 * 1024  # of one session
_STOPPED = "the agent was stopped by the operator"
_QUEUED = "the agent is started after others; the answer comes then"
_SPAWN_SECONDS = 33.0  # existing bridges wait 35 for a spawn_result


class ChatAgent:
    """Who answers one chat."""

    def __init__(self, registry: Registry, session: Session) -> None:
        self.registry = registry
        self.session = session
        self.is_present = False
        self.waiting = PendingQueue(registry.held)
        self.worker = Worker(self)
        self.active_at = anyio.current_time()
        self.heard = 0  # its activity count at the last check
        self._numbers = count(1)
        self._stops = 0  # by the operator

    @property
    def client_id(self) -> str:
        return self.session.client_id

    # Messages

    def take(self, ctx: Context) -> PendingMessage:
        """Hand a message over now, or keep it until the worker is there; await it for the ack.

        The first half happens at once, so that messages stay in the order they came in.
        """
        return self._take(ctx, is_worth_a_start=True)

    def take_if_up(self, ctx: Context) -> PendingMessage | None:
        """Accept a message for a worker that runs or is starting; do not start one."""
        if not (self.is_present or self.worker.is_starting):
            return None
        return self._take(ctx, is_worth_a_start=False)

    def _take(self, ctx: Context, *, is_worth_a_start: bool) -> PendingMessage:
        message = PendingMessage(
            ctx,
            next(self._numbers),
            self._stops,
            self._wait_for_ack,
            is_worth_a_start=is_worth_a_start,
        )
        self._place(message)
        return message

    def _place(self, message: PendingMessage) -> None:
        self.note_activity()
        if self.is_present and not self.worker.is_ending:  # one that ends would take it in vain
            message.forward(self.client_id)
            return
        if not (message.is_worth_a_start or self.worker.is_starting):
            message.refuse(Refuse(f"{self.client_id} left before it answered"))
            return
        self.waiting.check_room(self.registry.settings.agents.max_waiting, message)
        self.worker.bring_up(is_wanted=message.is_worth_a_start)
        self.waiting.add(message)
        if self.worker.is_queued:
            self.notify_queued()

    async def _wait_for_ack(self, message: PendingMessage) -> Ack:
        """Wait for the ack of a message that was taken; hand it over again if need be."""
        is_kept = False
        try:
            with anyio.move_on_after(self.registry.patience_seconds):
                return await self._deliver(message)
            is_kept = message.was_queued and message in self.waiting
            if not is_kept:
                raise Refuse("no answer in time", retry_seconds=_RETRY_SECONDS)
            number = await self._hold(message)
            self.registry.ctx.tasks.start_soon(self._deliver_late, message, number)
            answer = GeneralResponse("ok", _QUEUED, message.ctx.message_id)
            return Ack(payload=write_message(answer, sender=SYSTEM))
        except NoSessions as problem:
            is_kept = False
            raise Refuse(str(problem), retry_seconds=_RETRY_SECONDS) from None
        finally:
            if not is_kept:
                self.waiting.discard(message)  # its sender has been told something else by now

    async def _deliver(self, message: PendingMessage) -> Ack:
        while (ack := await message.outcome()) is None:
            if message.stops != self._stops:
                raise Refuse(_STOPPED)
            self._place(message)  # in front of all that came later
        return ack

    async def _hold(self, message: PendingMessage) -> int:
        """Write a message down before it is acked: a bus that ends now leaves it to the next."""
        await self.save()  # the next one has to know whose it is
        ctx, turn = message.ctx, message.turn
        assert turn is not None  # nothing else is told to wait
        held = HeldMessage(
            client_id=self.client_id,
            place=message.number,
            message_id=ctx.message_id,
            reply_to=turn.reply_to,
            sender=ctx.sender,
            payload=bytes(ctx.payload),
        )
        return await self.registry.sessions.hold(held)

    async def _deliver_late(self, message: PendingMessage, number: int) -> None:
        """Deliver a message after its sender got an ack; notify the chat if that fails."""
        try:
            ack = await self._deliver(message)
            reason = "" if ack.success else ack.message
        except Refuse as refusal:
            self.registry.ctx.log.warning(
                "message.late", agent=self.client_id, reason=refusal.reason
            )
            reason = _STOPPED if refusal.reason == _STOPPED else NOT_STARTED
        finally:
            self.waiting.discard(message)
        if self.registry.is_stopping:
            return  # the next bus has it
        self.registry.sessions.release(number)
        if reason and message.turn is not None:
            send_failure(self.registry, self.session, message.turn, "worker_failed", reason)

    def notify_queued(self) -> None:
        """Show in the chat that its messages wait for a start that is not begun yet."""
        for message in self.waiting:
            if message.turn is not None and not message.was_queued:
                message.was_queued = True
                send_step(self.registry, self.session, message.turn, "in_progress")

    def notify_launched(self) -> None:
        """Show in the chat that the start has begun."""
        for message in self.waiting:
            if message.turn is not None and message.was_queued:
                send_step(self.registry, self.session, message.turn, "complete")

    def hand_over_waiting(self) -> None:
        """Hand the worker what waits for it, unless it is about to end."""
        if not self.worker.is_ending:
            for message in self.waiting.take_all():
                message.forward(self.client_id)

    def refuse_waiting(self, refusal: Refuse) -> None:
        """Refuse all messages that wait: the worker will not come."""
        for message in self.waiting.take_all():
            message.refuse(refusal)

    async def ensure_running(self) -> None:
        """Wait until the worker is on the bus; raise Refuse saying why if it will not be.

        One that waits for its turn to start is not refused: its status is `spawning` then.
        """
        if not self.is_present or self.worker.is_ending:
            seconds = min(self.registry.patience_seconds, _SPAWN_SECONDS)
            await self.worker.bring_up(is_wanted=True).wait(seconds)

    async def stop(self) -> None:
        """End the worker because the operator wants so; all who wait for an answer are told."""
        self._stops += 1
        await self.worker.stop(self._cancel_turns)

    async def _cancel_turns(self) -> None:
        """Ask the worker to end its turns: only it knows which messages it has acked."""
        if not self.is_present:
            return
        data = Raw(msgspec.json.encode({"reason": _STOPPED}))
        with anyio.move_on_after(_CANCEL_SECONDS):
            await self.registry.ctx.send(
                self.client_id, AgentEvent("turn.cancel", data), sender=SYSTEM
            )

    # Presence

    def joined(self) -> None:
        """Hand the worker, in this very moment, what waits for it: nothing may overtake that."""
        if self.is_present:
            return  # a second connection of the same name
        self.is_present = True
        ctx = self.registry.ctx
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
        self.registry.ctx.subscribe(self.client_id)
        self.worker.changed()
        if self.waiting:
            self.worker.bring_up(is_wanted=True)  # messages arrived while it was stopping
        elif self.worker.state.is_expected:
            self.worker.bring_up(is_wanted=False)  # it may come back: somebody has to wait for it

    def configure(self, wanted: Configure, *, is_known_to_worker: bool = False) -> None:
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
        if self.is_present and not is_known_to_worker:
            self.registry.ctx.post(self.client_id, wanted, sender=SYSTEM)

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
        return self.worker.state.is_expected and table not in ("", self.registry.table_of(self))

    async def save(self, **changes: Any) -> None:
        """Change the record, written down before it is true; raise NoSessions."""
        await self.registry.sessions.save(msgspec.structs.replace(self.session, **changes))
        self.note(**changes)  # onto what else has changed meanwhile

    def note(self, **changes: Any) -> None:
        """Change the record; it is written soon."""
        self.session = msgspec.structs.replace(self.session, **changes)
        if self.client_id in self.registry.sessions.known:
            self.registry.sessions.note(self.session)

    def note_activity(self) -> None:
        self.active_at = anyio.current_time()
        self.session = msgspec.structs.replace(self.session, last_activity=now())

    def announce(self, event: str, reason: str = "", last_lines: tuple[str, ...] = ()) -> None:
        """Announce at system:events what happened."""
        self.registry.announce(self.session, event, reason, last_lines)
