"""Replies on their way: sent again, under the same id, while the addressee may come back."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from msgspec import UNSET, Raw

from busd.bus.message import Outcome
from busd.errors import BusdError, BusUnreachable, Busy, CallRefused, ConnectionLost

if TYPE_CHECKING:
    from busd.agent.turn import Turn
    from busd.bus.message import Receipt
    from busd.client.client import Client

log = logging.getLogger("busd.agent")

# A bridge that restarts with the bus is back within seconds.
_PAUSES = (0.25, 0.5, 1.0, 2.0, 4.0)
_PATIENCE_SECONDS = 1.0  # the next turn waits so long for the ack, and no longer
_LONGEST_PAUSE_SECONDS = 30.0


class Replies:
    """Brings an agent's replies to their addressees; one that is slow to ack holds up nobody."""

    def __init__(self, client: Client, settled: Callable[[Turn], None]) -> None:
        self._client = client
        self._settled = settled  # called for a turn when nothing of it is on the way any more
        self._on_the_way: set[_Delivery] = set()
        self._is_ending = False
        self.tasks: TaskGroup | None = None

    async def send(self, turn: Turn, to: str, payload: Raw, message_id: str) -> None:
        """Send a reply and see that it is on the way; raise BusdError if it can never be sent."""
        assert self.tasks is not None
        delivery = _Delivery(to, payload, message_id)
        turn.deliveries.add(delivery.scope)
        self.tasks.start_soon(self._deliver, turn, delivery)
        with anyio.move_on_after(_PATIENCE_SECONDS):
            await delivery.done.wait()
        if delivery.problem is not None:
            raise delivery.problem

    def hurry(self) -> None:
        """Limit the time of replies that are being delivered: the agent is ending."""
        self._is_ending = True
        for delivery in self._on_the_way:
            delivery.scope.deadline = anyio.current_time() + _PATIENCE_SECONDS

    async def _deliver(self, turn: Turn, delivery: _Delivery) -> None:
        self._on_the_way.add(delivery)
        try:
            with delivery.scope:
                await deliver_reply(
                    self._client,
                    delivery.to,
                    delivery.payload,
                    delivery.message_id,
                    caused_by=turn.message_id,
                )
        except BusdError as problem:
            delivery.problem = problem
            log.error("reply %s cannot be sent: %s", delivery.message_id, problem)
        self._on_the_way.discard(delivery)
        delivery.done.set()
        turn.deliveries.discard(delivery.scope)
        if not (delivery.scope.cancelled_caught and self._is_ending):
            self._settled(turn)


class _Delivery:
    def __init__(self, to: str, payload: Raw, message_id: str) -> None:
        self.to = to
        self.payload = payload
        self.message_id = message_id
        self.scope = anyio.CancelScope(shield=True)  # ended by `hurry`, or with its turn
        self.done = anyio.Event()
        self.problem: BusdError | None = None


async def deliver_reply(
    client: Client, to: str, payload: Raw, message_id: str, *, caused_by: str
) -> bool:
    """Send a reply, again if needed; return False, and log it, if nobody received it.

    The id is the same each time: whoever gets it twice, because its ack was lost with the line,
    can tell. A bus that keeps mail recognizes it by its key, and keeps it for a bridge that is
    away; it does so only for addresses that keep mail, not for each `busd send` that has ended.
    """
    # A key of this delivery: a turn that runs again after a crash has another reply by that id.
    key = os.urandom(16).hex() if client.keeps_mail else ""
    problem = ""
    for pause in (*_PAUSES, None):
        wished = 0.0
        try:
            receipt = await client.send(
                to, payload, message_id=message_id, idempotency_key=key, caused_by=caused_by
            )
            problem, wished = _trouble(receipt, to)
            if not problem:
                return True
            if wished < 0:
                break
        except (ConnectionLost, BusUnreachable) as lost:
            problem = str(lost)
        except CallRefused as refusal:
            if refusal.code != Busy.code:
                raise
            problem = str(refusal)
        if pause is not None:
            await anyio.sleep(min(max(pause, wished), _LONGEST_PAUSE_SECONDS))
    log.error("reply %s to %s is lost: %s", message_id, to, problem)
    return False


def _trouble(receipt: Receipt, to: str) -> tuple[str, float]:
    """Return what is wrong with a delivery, and when to try again (never: −1); "" if nothing is."""
    if receipt.is_kept:
        return "", 0.0
    if not receipt.acks:
        is_delivered = receipt.acks_left_out is not UNSET
        return ("", 0.0) if is_delivered else (f"nobody is subscribed to {to}", 0.0)
    if any(ack.success for ack in receipt.acks):
        return "", 0.0
    for ack in receipt.acks:
        if ack.should_retry is True or ack.outcome is Outcome.LOST:
            return ack.message, 0.0 if ack.retry_seconds is UNSET else float(ack.retry_seconds)
    return receipt.acks[0].message, -1.0
