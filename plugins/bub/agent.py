"""An agent: the one party that a chat talks to, whether its worker runs or not.

Messages to it pass nobody here: the bus hands them to the worker, and keeps them on the disk, in
order, while it is absent. The plugin starts the worker when mail waits, and gives the mail up if
the worker cannot be started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from msgspec import Raw

from busd import (
    AgentEvent,
    Configure,
    Refuse,
    RouteAssigned,
    UnfinishedTurn,
    event_address,
    now,
)
from busd_plugins.bub.chats import check_address
from busd_plugins.bub.forwarded import Forwarded
from busd_plugins.bub.notices import NOT_STARTED, SYSTEM, send_failure
from busd_plugins.bub.sessions import Session
from busd_plugins.bub.waiting_turns import WaitingTurns
from busd_plugins.bub.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from busd import Context
    from busd_plugins.bub.registry import Registry

EVENTS = "system:events"
_CANCEL_SECONDS = 2.0  # for a worker to tell its users that it is stopped
_MAX_SETTINGS_BYTES = 64 * 1024  # of one session
_STOPPED = "the agent was stopped by the operator"
_BURIAL_SECONDS = 2.0
_SPAWN_SECONDS = 33.0  # existing bridges wait 35 for a spawn_result


class ChatAgent:
    """Who answers one chat."""

    def __init__(self, registry: Registry, session: Session) -> None:
        self.registry = registry
        self.session = session
        self.is_present = False
        self.waiting_turns = WaitingTurns(self)
        self.unsettled = 0  # messages whose senders wait, and burials in progress
        self.worker = Worker(self)
        self.active_at = anyio.current_time()
        self.heard = 0  # its activity count at the last check
        self.stops = 0  # by the operator, in progress
        self._not_started = ""  # why its last start has failed

    @property
    def client_id(self) -> str:
        return self.session.client_id

    # Messages

    def take(self, ctx: Context) -> Forwarded:
        """Forward a message to the worker, kept until it is there; await it for the ack."""
        self.note_activity()
        return Forwarded(self, ctx)

    @property
    def is_up(self) -> bool:
        """Its worker is on the bus, or will be soon."""
        return (self.is_present and not self.worker.is_ending) or self.worker.is_starting

    @property
    def has_mail(self) -> bool:
        """The bus keeps messages for it that it has not answered."""
        return self.registry.ctx.mail.is_waiting(self.client_id)

    @property
    def is_awaited(self) -> bool:
        """Somebody waits for it, or has to be told that it does not come."""
        return self.has_mail or self.unsettled > 0

    def on_mail(self, ctx: Context) -> None:
        """Start the worker for a message that is kept for it."""
        self.note_activity()
        if turn := _turn_of(ctx):
            self.waiting_turns.add(turn)
        self.start_for_mail()

    def start_for_mail(self) -> None:
        """Start the worker, unless the bus stops: then the next one does."""
        if not self.registry.is_stopping:
            self.worker.bring_up(is_wanted=True)
            if self.worker.is_queued or self.client_id in self.registry.start_queue:
                self.waiting_turns.notify_queued()

    def on_start_refused(self, refusal: Refuse) -> None:
        """Bury what waits for the worker, or let it wait for another start."""
        if self.registry.is_stopping or self.registry.ctx.is_stopping:
            return  # the next bus starts it: this one lets nobody connect
        if refusal.retry_seconds is None:
            self._not_started = refusal.reason
            self.waiting_turns.clear()
            buried = self.registry.ctx.mail.bury(self.client_id, refusal.reason)
            self.unsettled += 1
            self.registry.ctx.tasks.start_soon(self._go_on_after, buried)
        elif self.has_mail:
            self.registry.start_queue.add(self)
            self.waiting_turns.notify_queued()

    async def _go_on_after(self, buried: Awaitable[int]) -> None:
        """Start the worker for what came after the failure."""
        try:
            await buried
        finally:
            self.unsettled -= 1
        if self.has_mail:
            self.start_for_mail()
        self.registry.forget_unless_kept(self)

    def on_dead_letter(self, reason: str, ctx: Context) -> None:
        """Notify the chat of a message that was given up after its sender got an ack."""
        if turn := _turn_of(ctx):
            code = "stopped" if reason == _STOPPED else "worker_failed"
            why = NOT_STARTED if reason == self._not_started else reason
            send_failure(self.registry, self.session, turn, code, why)

    async def ensure_running(self) -> None:
        """Wait until the worker is on the bus; raise Refuse saying why if it will not be.

        One that waits for its turn to start is not refused: its status is `spawning` then.
        """
        if not self.is_present or self.worker.is_ending:
            seconds = min(self.registry.answer_seconds, _SPAWN_SECONDS)
            await self.worker.bring_up(is_wanted=True).wait(seconds)

    async def stop(self) -> None:
        """End the worker because the operator wants so; all who wait for an answer are told."""
        self.stops += 1
        self.waiting_turns.clear()
        buried = self.registry.ctx.mail.bury(self.client_id, _STOPPED)
        try:
            await self.worker.stop(self._cancel_turns)
            with anyio.move_on_after(_BURIAL_SECONDS):  # else it goes on when the disk does
                await buried
        finally:
            self.stops -= 1
        if self.has_mail:
            self.start_for_mail()  # it came after the stop

    async def _cancel_turns(self) -> None:
        """Ask the worker to end its turns: only it knows which messages it has acked."""
        if not self.is_present:
            return
        data = Raw(msgspec.json.encode({"reason": _STOPPED}))
        with anyio.move_on_after(_CANCEL_SECONDS):
            await self.registry.ctx.tell(
                self.client_id, AgentEvent("turn.cancel", data), sender=SYSTEM
            )

    # Presence

    def joined(self) -> None:
        """Configure the worker, before the bus hands it what waits."""
        if self.is_present:
            return  # a second connection of the same name
        self.is_present = True
        ctx = self.registry.ctx
        ctx.tell(self.client_id, self._configuration(), sender=SYSTEM)
        self.waiting_turns.clear()
        self.note_activity()
        self.worker.joined()
        assigned = RouteAssigned(chat_id=self.session.chat_id, agent_id=self.client_id)
        for address in (event_address(self.session.talkto), EVENTS):
            ctx.post(address, assigned, sender=SYSTEM)

    def left(self) -> None:
        """Start the worker again if messages wait for it; wait for one that may come back."""
        if not self.is_present:
            return
        self.is_present = False
        self.worker.changed()
        if self.worker.is_ending:
            return  # what waits is for the next one, after its end
        if self.has_mail:
            self.worker.bring_up(is_wanted=True)
        elif self.worker.state.is_expected:
            self.worker.bring_up(is_wanted=False)

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
        if self.is_present and not self.worker.is_ending and not is_known_to_worker:
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


def _turn_of(ctx: Context) -> UnfinishedTurn | None:
    """Return the turn that a message asks for; None if it asks for none."""
    if ctx.type != "tg_message":
        return None
    return UnfinishedTurn(ctx.message_id, ctx.own_message_id or ctx.message_id)
