"""A road for messages: the loop breaker as the bus uses it, without a bus."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from msgspec import UNSET, Raw

from busd.bus.loops import LoopLimits, Loops
from busd.bus.message import Message
from busd.errors import LoopDetected
from busd.testing.bus import FakeClock

BUDGET = 1_000
SOON = 4 * BUDGET  # messages over each edge of a cycle; one in 61 is seen


class Party:
    """A peer that has a name and subscriptions."""

    shows_attempts = False
    bus: Any  # never used
    hand_over: Any

    def __init__(self, name: str) -> None:
        self.name = name
        self.subscriptions = {name}


class Road:
    """Does what the bus does with the loop breaker, and nothing else."""

    def __init__(self, limits: LoopLimits | None = None) -> None:
        self.clock = FakeClock()
        self.loops = Loops(limits or LoopLimits(max_cycle_messages=BUDGET), self.clock)
        self.accepted = 0
        self.parties: dict[str, Party] = {}

    def send(self, sender: str, to: str, speaks_as: str = "", via: str = "") -> dict[str, Any]:
        """Send a message; return the data of its refusal, nothing if it was accepted.

        `via` is the peer that gets it, if the address is not its name.
        """
        if self.accepted + 1 >= self.loops.next_number:
            party = self.parties.setdefault(via or to, Party(via or to))
            message = Message(sender=speaks_as or sender, to=to, message_id="m", payload=Raw(b"{}"))
            try:
                self.loops.judge(self.accepted + 1, message, UNSET, sender, (party,))
            except LoopDetected as refusal:
                return refusal.data
        self.accepted += 1
        return {}

    @property
    def is_free(self) -> bool:
        """True if nothing was refused."""
        return not self.loops.refused


def send_round(road: Road, cycle: list[str], count: int, seconds: float = 0.0) -> int:
    """Send messages round a cycle until one is refused; return the number of full rounds."""
    edges = list(pairwise([*cycle, cycle[0]]))
    for number in range(count):
        for sender, to in edges:
            road.clock.now += seconds
            if road.send(sender, to):
                return number
    return count
