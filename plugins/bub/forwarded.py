"""Messages forwarded to an agent: kept by the bus first, then handed to its worker.

The ack of the sender is the worker's own if it comes soon enough. A message that is not answered by
then is on the disk, so it gets a successful ack: its answer comes later, or the chat is told why
not.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import UNSET

from busd import Ack, GeneralResponse, Refuse, write_message
from busd_plugins.bub.notices import SYSTEM

if TYPE_CHECKING:
    from busd import Context, Receipt
    from busd_plugins.bub.agent import ChatAgent

KEPT = "kept: the agent is starting; the answer comes later"
NOT_ANSWERED = "kept: the agent has not accepted it yet; the answer comes later"
_RETRY_SECONDS = 1.0
_BEHIND_SECONDS = 1.0  # to wait for a worker that has not accepted earlier messages either


class Forwarded:
    """A message on its way to an agent; awaiting it returns the ack."""

    def __init__(self, agent: ChatAgent, ctx: Context) -> None:
        """Forward it at once, so that messages stay in the order they came in."""
        self._agent = agent
        self._ctx = ctx
        agent.unsettled += 1
        patience = agent.registry.patience_seconds
        if agent.is_present and agent.has_mail:
            # Bridges send the messages of a chat one after the other, and all chats would wait.
            patience = min(patience, _BEHIND_SECONDS)
        self._sent = ctx.forward(agent.client_id, durable=True, patience_seconds=patience)

    def __await__(self) -> Generator[Any, Any, Ack]:
        return self._wait().__await__()

    async def _wait(self) -> Ack:
        agent = self._agent
        try:
            with anyio.move_on_after(agent.registry.answer_seconds):
                receipt = await self._sent
                if not receipt.accepted and agent.is_present:
                    # The disk cannot take it: the worker still can, if nothing waits before it.
                    receipt = await self._ctx.forward(agent.client_id)
                return self._ack_of(receipt)
            raise Refuse("no answer in time", retry_seconds=_RETRY_SECONDS)  # nor from the disk
        finally:
            agent.unsettled -= 1
            agent.registry.forget_unless_kept(agent)

    def _ack_of(self, receipt: Receipt) -> Ack:
        if not receipt.accepted:
            raise Refuse(str(receipt.undelivered), retry_seconds=self._sent.retry_seconds)
        if receipt.undelivered in ("kept", "retrying"):
            words = NOT_ANSWERED if self._agent.is_present else KEPT
            answer = GeneralResponse("ok", words, self._ctx.message_id)
            return Ack(payload=write_message(answer, sender=SYSTEM))
        ack = ack_that_counts(receipt)
        if receipt.mail is not UNSET:
            ack.should_retry = ack.retry_seconds = UNSET  # the bus has done that
        return ack


def ack_that_counts(receipt: Receipt) -> Ack:
    """Return the one ack that counts: several connections may carry the same client id."""
    for ack in receipt.acks:
        if ack.success:
            return ack
    if receipt.acks:
        return receipt.acks[0]
    state = receipt.undelivered if receipt.mail is UNSET else receipt.mail.state
    return Ack(False, f"the message was not delivered: {state}")
