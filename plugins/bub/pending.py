"""Messages on their way to an agent: each from the moment it is taken to its ack.

The rule: a message is handed to the agent once, and once more only if the agent left the bus
owing its ack. So an agent that acks when it has answered gives every answer at least once (twice
only if it is killed between the two), one that acks first and answers later at most once. The
second copy has the same messageId: whoever remembers it can tell.

While an agent is absent its messages wait in a queue, within a number and a size.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import anyio

from busd import Ack, Outcome, Refuse, UnfinishedTurn

if TYPE_CHECKING:
    from busd import Context, Receipt, Sent

MAX_HELD_BYTES = 64 * 1024 * 1024  # of all agents together
MAX_HELD_MESSAGES = 20_000
_RETRY_SECONDS = 1.0
_MAX_TRIES = 2


class PendingMessage:
    """A message that an agent has taken; awaiting it returns the ack."""

    def __init__(
        self,
        ctx: Context,
        number: int,
        stops: int,
        wait_for_ack: Callable[[PendingMessage], Awaitable[Ack]],
        *,
        is_worth_a_start: bool,
    ) -> None:
        self.ctx = ctx
        self._wait_for_ack = wait_for_ack
        self.stops = stops  # how often the operator had stopped the agent when it came
        self.is_worth_a_start = is_worth_a_start  # of a worker, if none runs
        self.number = number  # in which order an agent gets what waits for it
        self.size = memoryview(ctx.payload).nbytes
        self.tries = 0
        self.was_queued = False  # its worker was not started at once, and its chat was told
        self._sent: Sent | None = None
        self._refusal: Refuse | None = None
        self._is_decided = anyio.Event()

    def __await__(self) -> Generator[Any, Any, Ack]:
        return self._wait_for_ack(self).__await__()

    def forward(self, client_id: str) -> None:
        """Hand the message over, now."""
        self.tries += 1
        self._sent = self.ctx.forward(client_id)
        self._is_decided.set()

    def refuse(self, refusal: Refuse) -> None:
        """Refuse the message; its sender learns why."""
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
        if ack.outcome is not Outcome.LOST:
            return ack
        if self.tries >= _MAX_TRIES:
            return Ack.failed(Outcome.LOST)  # and no word of yet another try
        self._sent, self._is_decided = None, anyio.Event()
        return None


def _ack_of(receipt: Receipt) -> Ack:
    """Return the one ack that counts: several connections may carry the same client id."""
    if not receipt.accepted:
        return Ack(False, str(receipt.undelivered))
    for ack in receipt.acks:
        if ack.success:
            return ack
    return receipt.acks[0] if receipt.acks else Ack.failed(Outcome.LOST)


class PendingTotals:
    """Counts the messages that wait, of all agents together."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0

    def add(self, message: PendingMessage) -> None:
        self.messages += 1
        self.bytes += message.size

    def remove(self, message: PendingMessage) -> None:
        self.messages -= 1
        self.bytes -= message.size

    def has_room(self, message: PendingMessage) -> bool:
        is_light = self.bytes + message.size <= MAX_HELD_BYTES
        return is_light and self.messages < MAX_HELD_MESSAGES


class PendingQueue:
    """The messages that wait for one agent."""

    def __init__(self, totals: PendingTotals) -> None:
        self._totals = totals
        self._messages: list[PendingMessage] = []  # in the order they came

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[PendingMessage]:
        return iter(self._messages)

    def check_room(self, max_waiting: int, message: PendingMessage) -> None:
        """Raise Refuse if this one would be too much."""
        if not self._totals.has_room(message) or len(self._messages) >= max_waiting:
            raise Refuse("agent is starting, too many messages wait", retry_seconds=_RETRY_SECONDS)

    def add(self, message: PendingMessage) -> None:
        """Put a message in its place: one that was lost stands before all that came later."""
        self._totals.add(message)
        insort(self._messages, message, key=lambda each: each.number)

    def take_all(self) -> list[PendingMessage]:
        """Return all that waits, in order; nothing waits then."""
        messages, self._messages = self._messages, []
        for message in messages:
            self._totals.remove(message)
        return messages

    def discard(self, message: PendingMessage) -> None:
        """Take one out, if it is still there."""
        if message in self._messages:
            self._messages.remove(message)
            self._totals.remove(message)
