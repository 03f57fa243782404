"""Local peers: parties on the bus that have no socket. A plugin is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Raw

from busd.bus.awaited import Entry
from busd.bus.delivery import Delivery
from busd.bus.message import Ack, HandedMessage, Message, Outcome
from busd.bus.peer import BUSY_RETRY_SECONDS, connection_numbers
from busd.bus.quota import UNLIMITED, Allowance

if TYPE_CHECKING:
    from busd.bus.bus import Bus

MAX_SHOWN = 1_000  # subscriptions of one: it may have any number, and a frame has an end

# Takes a message that is now its own, and the number to answer it by; False if it cannot now.
Take = Callable[[int, HandedMessage], bool]


class LocalPeer:
    """A peer in this process: same routes, same acks, same sweeper as any other."""

    __slots__ = (
        "account",
        "allowance",
        "awaited",
        "bus",
        "calls",
        "connection_id",
        "globs",
        "info",
        "name",
        "number",
        "shows_attempts",
        "subscriptions",
        "take",
        "wildcards",
    )

    def __init__(self, name: str, bus: Bus, take: Take, info: Raw | None = None) -> None:
        self.name = name
        self.bus = bus
        self.number = next(connection_numbers)
        self.connection_id = f"local-{self.number}"
        self.account = bus.plugin_account
        self.allowance = Allowance(self.account, UNLIMITED, name)
        self.awaited: Entry | None = None
        self.globs = self.wildcards = 0
        self.info = info
        self.shows_attempts = True
        self.calls: dict[int, Delivery] = {}
        self.subscriptions: set[str] = set()
        self.take = take

    def hand_over(self, message: Message, frame: bytes, delivery: Delivery) -> None:
        """Pass one message to the plugin, unless it has too many already."""
        # Its own: the bus lets go of the payload as soon as everybody has the message.
        own = HandedMessage(
            sender=message.sender,
            to=message.to,
            message_id=message.message_id,
            payload=message.payload.copy(),
        )
        if isinstance(message, HandedMessage):
            own.delivery_attempt = message.delivery_attempt
        self.calls[delivery.call_id] = delivery
        if self.awaited is None:
            self.bus.await_acks(self, delivery.started)
        if not self.take(delivery.call_id, own):
            del self.calls[delivery.call_id]
            delivery.settle_failed(self, Outcome.BUSY, BUSY_RETRY_SECONDS)

    def answer(self, call_id: int, ack: Ack) -> None:
        """Answer a message; an ack that nobody waits for any more is dropped."""
        delivery = self.calls.pop(call_id, None)
        if delivery is not None:
            delivery.settle(self, ack)
