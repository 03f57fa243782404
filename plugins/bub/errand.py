"""Errands: one message on its way to an agent, from the moment it is taken to its ack.

The rule: a message is handed to the agent once, and once more only if the agent left the bus
owing its ack. So an agent that acks when it has answered gives every answer at least once (twice
only if it is killed between the two), one that acks first and answers later at most once. The
second copy has the same messageId: whoever remembers it can tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from busd import Ack, Refuse, UnfinishedTurn

if TYPE_CHECKING:
    from busd import Context, Receipt, Sent

_LOST = "peer left before it answered"  # what the bus says of an ack that will not come
_MAX_TRIES = 2


class Errand:
    """A message, and what is to become of it."""

    def __init__(self, ctx: Context, number: int, stops: int, *, is_worth_a_start: bool) -> None:
        self.ctx = ctx
        self.stops = stops  # how often the operator had stopped the agent when it came
        self.is_worth_a_start = is_worth_a_start  # of a worker, if none runs
        self.number = number  # in which order an agent gets what waits for it
        self.size = memoryview(ctx.payload).nbytes
        self.tries = 0
        self.was_queued = False  # its worker was not started at once, and its chat was told
        self._sent: Sent | None = None
        self._refusal: Refuse | None = None
        self._is_decided = anyio.Event()

    def forward(self, client_id: str) -> None:
        """Hand the message over, now."""
        self.tries += 1
        self._sent = self.ctx.forward(client_id)
        self._is_decided.set()

    def refuse(self, refusal: Refuse) -> None:
        """Give up: the sender hears why."""
        self._refusal = refusal
        self._is_decided.set()

    @property
    def turn(self) -> UnfinishedTurn | None:
        """The turn that the message asks for; None if it asks for none."""
        if self.ctx.type != "tg_message":
            return None
        return UnfinishedTurn(self.ctx.message_id, self.ctx.own_message_id or self.ctx.message_id)

    async def outcome(self) -> Ack | None:
        """Wait for the agent's ack; None if it left owing it, and may be asked once more."""
        await self._is_decided.wait()
        if self._refusal is not None:
            raise Refuse(self._refusal.reason, retry_seconds=self._refusal.retry_seconds)
        assert self._sent is not None
        ack = _ack_of(await self._sent)
        if ack.success or ack.message != _LOST:
            return ack
        if self.tries >= _MAX_TRIES:
            return Ack(False, _LOST)  # and no word of yet another try
        self._sent, self._is_decided = None, anyio.Event()
        return None


def _ack_of(receipt: Receipt) -> Ack:
    """Give the one ack that counts: several connections may carry the same client id."""
    if not receipt.accepted:
        return Ack(False, str(receipt.undelivered))
    for ack in receipt.acks:
        if ack.success:
            return ack
    return receipt.acks[0] if receipt.acks else Ack(False, _LOST)
