"""The outbox: sends what is kept of one conversation for the bus, in order.

A message stays in the store until the bus has accepted it, so a gateway or a bus that is killed
loses none; what is sent twice is recognized by its id. The next message is sent when the one before
it is answered or, because an agent may ack after its work only, has been with the bus for a while.
All that is under way is given up with the line, and sent again on the next one, in order.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import anyio
import structlog

from busd.errors import BusdError, Busy, CallRefused
from busd.gateway.order import StepFailed
from busd.gateway.receipts import Outcome, outcome_of
from busd.gateway.refusal import RETRY_SECONDS, Refusal
from busd.gateway.sent import on_sent
from busd.gateway.stored import Outgoing, StoreBusy, StoreFailed, StoreRefusal

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from busd.gateway.room import Room

log = structlog.get_logger("busd.gateway")

_PATIENCE_SECONDS = 0.25  # for an answer, before the next message is sent
_AT_ONCE = 128  # messages of one conversation that wait for their answers
_PAUSE_SECONDS = 1.0


class SendingState(StrEnum):
    """Where an unsent message is.

    QUEUED → WITH_BUS → DONE; WITH_BUS → POSTPONED → WITH_BUS, as often as the bus wishes; and
    QUEUED again when the line is lost.
    """

    QUEUED = "queued"
    WITH_BUS = "with_bus"
    POSTPONED = "postponed"
    DONE = "done"


class Sending:
    """A message of the outbox, in memory."""

    def __init__(self, row: Outgoing) -> None:
        self.row = row
        self.state = SendingState.QUEUED
        self.done = anyio.Event()


class Outbox:
    """The unsent messages of one conversation."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._sendings: dict[str, Sending] = {}
        self._is_running = False
        self._changed = anyio.Event()

    def __len__(self) -> int:
        return len(self._sendings)

    @property
    def is_behind(self) -> bool:
        """Whether there is a message that could be sent now, and is not with the bus yet."""
        can_send = self._room.hub.is_connected and not self._is_crowded()
        return can_send and self._next() is not None

    def add(self, *rows: Outgoing) -> None:
        """Send messages that are in the store."""
        for row in rows:
            self._sendings[row.message_id] = Sending(row)
        self._changed.set()
        if self._sendings and not self._is_running:
            self._is_running = True
            self._room.hub.tasks.start_soon(self._run)

    async def _run(self) -> None:
        """Send until nothing is left."""
        bus = self._room.hub.bus
        try:
            while self._sendings:
                try:
                    await bus.wait_until_held(self._room.chat.address)
                except CallRefused as refusal:
                    await self._refuse_all(str(refusal))
                    continue
                with bus.on_this_line():
                    await self._send_all()
        finally:
            self._is_running = False
        self._room.release_if_unused()

    async def _refuse_all(self, reason: str) -> None:
        for sending in list(self._sendings.values()):
            await self._settle(sending, Outcome(is_accepted=False, reason=reason))

    async def _send_all(self) -> None:
        for sending in self._sendings.values():
            sending.state = SendingState.QUEUED
        async with anyio.create_task_group() as tasks:
            while self._sendings:
                self._changed = anyio.Event()
                await self._send_next(tasks)

    async def _send_next(self, tasks: TaskGroup) -> None:
        """Send the next message, and wait until another one may follow."""
        sending = self._next()
        if sending is None or self._is_crowded():
            await self._changed.wait()
            return
        sending.state = SendingState.WITH_BUS
        tasks.start_soon(self._send, sending)
        while sending.state is not SendingState.DONE:
            with anyio.move_on_after(_PATIENCE_SECONDS):
                await sending.done.wait()
            if sending.state is SendingState.WITH_BUS:
                return

    def _next(self) -> Sending | None:
        queued = (each for each in self._sendings.values() if each.state is SendingState.QUEUED)
        return next(queued, None)

    def _is_crowded(self) -> bool:
        waiting = [each for each in self._sendings.values() if each.state is SendingState.WITH_BUS]
        return len(waiting) >= _AT_ONCE

    async def _send(self, sending: Sending) -> None:
        """Send a message until it is accepted or refused for good."""
        while True:
            outcome = await self._try(sending.row)
            if outcome.retry_seconds is None:
                break
            sending.state = SendingState.POSTPONED
            await anyio.sleep(outcome.retry_seconds)
            sending.state = SendingState.WITH_BUS
        await self._settle(sending, outcome)

    async def _try(self, row: Outgoing) -> Outcome:
        try:
            receipt = await self._room.hub.bus.send(
                row.to, row.payload, self._room.chat.address, row.message_id
            )
        except CallRefused as refusal:
            if refusal.code != Busy.code:
                return Outcome(is_accepted=False, reason=refusal.message)
            data = refusal.data if isinstance(refusal.data, dict) else {}
            wished = data.get("retrySeconds")
            seconds = wished if isinstance(wished, int | float) else _PAUSE_SECONDS
            return Outcome(is_accepted=False, retry_seconds=max(seconds, 0.05))
        except BusdError as problem:  # the line is lost, or there is no answer
            log.info("message.unsent", to=row.to, reason=str(problem))
            return Outcome(is_accepted=False, retry_seconds=_PAUSE_SECONDS)
        return outcome_of(receipt, row.to)

    async def _settle(self, sending: Sending, outcome: Outcome) -> None:
        """Record the outcome; while the disk cannot take it, try again."""
        while True:
            try:
                await on_sent(self._room, sending.row, outcome)
                break
            except (Refusal, StoreBusy, StoreFailed) as problem:
                if isinstance(problem, Refusal) and problem.rule != "busy":
                    break
                await anyio.sleep(RETRY_SECONDS)
            except (StoreRefusal, StepFailed):
                break  # the conversation is gone
        self._sendings.pop(sending.row.message_id, None)
        sending.state = SendingState.DONE
        sending.done.set()
        self._changed.set()
