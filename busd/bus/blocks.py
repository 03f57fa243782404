"""Blocks: cycles of messages that are refused for a while, longer each time that they come back."""

from __future__ import annotations

from math import inf
from random import Random

import msgspec

from busd.bus.cycles import SAMPLE_EVERY, Edge, Key, Traffic, path_of

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 300.0
REMEMBERED_SECONDS = 600.0  # a cycle that comes back within this time pauses twice as long
MAX_BLOCKS = 64


class Block(msgspec.Struct, eq=False, frozen=True):
    """A cycle that is refused until a time, and is remembered for a while after it."""

    keys: frozenset[Key]
    path: tuple[str, ...]
    pause: float
    until: float


class Blocks:
    """Looks at a sample of the traffic, and knows what of it is blocked.

    `next_number` is the number of the next message to be looked at: the next one of the sample, or
    any while something is blocked. Until then a message costs one comparison.
    """

    def __init__(self, max_messages: int, seconds: float, number: float, now: float) -> None:
        self._traffic = Traffic(max_messages, seconds, now)
        # Regular gaps would meet regular traffic at the same edge again and again.
        self._random = Random(SAMPLE_EVERY)  # noqa: S311 - not a secret
        self._next_sample = number if max_messages else inf
        self.next_number = self._next_sample
        self._remembered: dict[frozenset[Key], Block] = {}
        self._active: dict[Key, Block] = {}

    def __bool__(self) -> bool:
        """True while anything is blocked."""
        return bool(self._active)

    def find(self, key: Key, now: float) -> Block | None:
        """Return the block of an edge."""
        block = self._active.get(key)
        return block if block is not None and now < block.until else None

    def is_due(self, number: int, now: float) -> bool:
        """Return whether a message belongs to the sample; choose the next one if it does."""
        if number < self._next_sample:
            return False
        self._next_sample = number + 1 + int(self._random.random() * (2 * SAMPLE_EVERY - 1))
        if self._active:
            for block in self._remembered.values():
                if now >= block.until:
                    self._lift(block)
        self.next_number = 0 if self._active else self._next_sample
        return True

    def skip_number(self) -> None:
        """Choose the sample as if the last number had not been used."""
        self._next_sample += 1
        self.next_number = 0 if self._active else self._next_sample

    def note(self, key: Key, receiver: str, now: float, *, is_budgeted: bool) -> Block | None:
        """Count a message of the sample; return the block of the cycle that it is one too many of.

        Every edge of a blocked cycle begins to count anew: what passed before is punished already.
        """
        cycle = self._traffic.note(key, receiver, now, is_budgeted=is_budgeted)
        if not cycle:
            return None
        self._traffic.clear(cycle)
        return self._block(cycle, now)

    def _block(self, cycle: list[Edge], now: float) -> Block:
        keys, pause = frozenset(edge.key for edge in cycle), FIRST_PAUSE_SECONDS
        if (before := self._remembered.pop(keys, None)) is not None:
            if now < before.until + REMEMBERED_SECONDS:
                pause = min(before.pause * 2, LONGEST_PAUSE_SECONDS)
        elif len(self._remembered) >= MAX_BLOCKS:
            first = min(self._remembered.values(), key=lambda block: block.until)
            self._lift(self._remembered.pop(first.keys))
        block = Block(keys, path_of(cycle), pause, now + pause)
        self._remembered[keys] = block
        self._active.update(dict.fromkeys(keys, block))
        self.next_number = 0
        return block

    def _lift(self, block: Block) -> None:
        for key in block.keys:
            if self._active.get(key) is block:
                del self._active[key]
