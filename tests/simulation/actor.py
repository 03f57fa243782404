"""An actor: one scripted peer, what it has seen, and what the model knows of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from busd.testing import Handed, ScriptedPeer
from tests.simulation.oracle import Ack

if TYPE_CHECKING:
    from tests.simulation.ledger import Record

Check = Callable[[dict[str, Any]], None]


@dataclass(eq=False)
class Asked:
    """One request that wants an answer."""

    request_id: object  # None: the answer will not name it
    check: Check  # raises if the answer is not what it ought to be
    record: Record | None = None  # of the message that it sent, if it sent one


@dataclass(eq=False)
class Group:
    """Requests that are answered in one frame: one alone, or a batch."""

    asked: list[Asked]
    is_batch: bool

    @property
    def must_be_answered(self) -> bool:
        return all(each.record is None or each.record.is_settled for each in self.asked)


@dataclass(eq=False)
class Actor:
    """One peer of the simulation."""

    uid: int
    peer: ScriptedPeer
    connected_at: float
    name: str = ""  # until it has initialized
    patterns: set[str] = field(default_factory=set)
    is_reading: bool = True
    has_left: bool = False  # the bus has heard its end; it may still get answers
    is_gone: bool = False
    is_ending: bool = False  # it has said its last word, whether the bus has read it or not
    forfeits: bool = False  # it went without waiting for answers, or broke the framing
    # Frames that wait because the bus does not read from this peer: what they will do.
    deferred: list[Callable[[], None]] = field(default_factory=list)
    # Messages that it was handed and has not answered: their number -> when time is up.
    pending: dict[int, float] = field(default_factory=dict)
    seen: dict[int, Handed] = field(default_factory=dict)
    last_from: dict[int, int] = field(default_factory=dict)  # sender's uid -> last number seen
    todo: list[int] = field(default_factory=list)  # handed and not answered by choice
    done: list[int] = field(default_factory=list)  # answered, could be answered again
    groups: list[Group] = field(default_factory=list)
    refused: set[int] = field(default_factory=set)  # the sender was told that it is busy

    def __repr__(self) -> str:
        return f"{self.name or 'stranger'}#{self.uid}"

    @property
    def is_member(self) -> bool:
        return bool(self.name) and not self.has_left

    @property
    def may_speak(self) -> bool:
        return not self.has_left and not self.is_gone

    def post(self, frames: list[bytes], effects: list[Callable[[], None]]) -> None:
        """Send frames whose effects take place when the bus reads them."""
        if not self.peer.is_connected:
            return  # the bus closed it in this very step
        if self.peer.transport.is_read_by_bus:
            for effect in effects:
                effect()
        else:
            self.deferred += effects
        for frame in frames:
            self.peer.send_frame(frame)

    def read_on(self) -> None:
        """Read again; the bus reads what has waited, too."""
        deferred, self.deferred = self.deferred, []
        for effect in deferred:
            effect()
        self.peer.read_on()
        self.is_reading = True


@dataclass(eq=False)
class Fate:
    """What may become of one message at one of its addressees."""

    is_sure: bool  # False: it was sent while the peer did not read, it may have been busy
    may_be: set[str] = field(default_factory=set)  # of busy, left, late, ack; none: still waiting
    ack: Ack = field(default_factory=dict)
