"""Mail in memory, and the attempts to deliver it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
from msgspec import Raw, UnsetType

from busd.bus.delivery import FanOut
from busd.bus.mail import Mail
from busd.bus.mail_state import after, initial_state
from busd.bus.message import Outcome

if TYPE_CHECKING:
    from busd.bus.delivery import AnyAck
    from busd.bus.mailbox import Mailbox
    from busd.bus.peer import Peer
    from busd.bus.record import Record

log = structlog.get_logger("busd.bus")


class QueuedMail:
    """One message of a mailbox in memory."""

    __slots__ = ("box", "made", "mail", "recorded", "state")

    def __init__(self, box: Mailbox, mail: Mail, made: int) -> None:
        self.box = box
        self.mail = mail
        self.made = made  # attempts, at most; after a crash the last one on record may be in vain
        self.recorded = mail.attempts
        self.state = initial_state(mail.attempts, mail.not_before)

    def enter(self, event: str) -> None:
        """Perform the transition of an event."""
        before, self.state = self.state, after(self.state, event)
        if self.box.room.bus.is_verbose:
            log.debug(
                "mail.changed",
                mail=self.mail.id,
                to=self.mail.address,
                before=before,
                after=self.state,
            )


class Attempt(FanOut, eq=False):
    """Mail on its way to everyone who is subscribed to its address."""

    item: Any = None  # QueuedMail
    names: frozenset[str] = frozenset()  # of the peers that answer for the address
    handed_at: float = 0.0

    def settle_failed(
        self,
        peer: Peer,
        outcome: Outcome,
        retry_seconds: float | None = None,
        detail: str = "",
    ) -> None:
        """Record a failed ack; but a peer that is here and silent may still be at work.

        Existing agents answer after the whole turn, and do not notice that they get it again.
        """
        bus, box = peer.bus, self.item.box
        is_at_work = outcome is Outcome.TIMEOUT and peer.name in self.names
        if is_at_work and bus.clock() - self.handed_at < box.room.ack_seconds:
            member: Any = peer  # nobody else is asked for answers
            self.started = bus.clock()
            member.calls[self.call_id] = self
            if member.awaited is None:
                bus.await_acks(member, self.started)
            box.on_silence()
            return
        super().settle_failed(peer, outcome, retry_seconds, detail)

    def refuse(self, peer: Peer, error: Raw | UnsetType) -> None:
        """Record an error reply; while the bus is stopping, it may be the fault of the bus.

        An agent whose own messages the bus refuses then fails, and its work is not done.
        """
        if peer.bus.is_stopping:
            self.settle_failed(peer, Outcome.STOPPING)
        else:
            super().refuse(peer, error)

    def ended_record(self, peer: Peer, ack: AnyAck, ended: float) -> Record:
        record = super().ended_record(peer, ack, ended)
        record.started = self.handed_at
        return record

    def _answer(self) -> None:
        self.item.box.on_answered(self.item, self)
