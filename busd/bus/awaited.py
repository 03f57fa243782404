"""Awaited: the peers that owe acks, by when the oldest message was handed to them.

A peer is entered when it gets a message and is not entered yet, so at most once per time-out. Its
entry is looked at when the oldest message it had then may be overdue; peers without messages are
never looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import TYPE_CHECKING, Any

from busd.bus.message import Outcome

if TYPE_CHECKING:
    from busd.bus.peer import Member

# When the oldest message was handed over, a number that orders equals, and the peer; None: it left.
Entry = list[Any]


class Awaited:
    """A heap of entries; each peer has its own, so that it can leave without a search."""

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._numbers = count()

    def add(self, peer: Member, started: float) -> None:
        """Enter a peer that was handed a message."""
        peer.awaited = entry = [started, next(self._numbers), peer]
        heappush(self._heap, entry)

    def remove(self, peer: Member) -> None:
        """Remove a peer that has left; its empty entry is removed when it is due."""
        if peer.awaited is not None:
            peer.awaited[2] = None
            peer.awaited = None

    def __iter__(self) -> Iterator[Member]:
        """Return every peer that owes acks, and some that owe none any more."""
        return iter([entry[2] for entry in self._heap if entry[2] is not None])

    def has_due(self, before: float) -> bool:
        """Return whether an entry is to be looked at."""
        return bool(self._heap) and self._heap[0][0] <= before

    def expire(self, before: float, budget: int) -> int:
        """Fail up to `budget` messages that were handed over before that; return what is left."""
        heap = self._heap
        while budget > 0 and heap and heap[0][0] <= before:
            budget -= 1
            peer: Member | None = heap[0][2]
            if peer is None:
                heappop(heap)
            elif not peer.calls:
                peer.awaited = None
                heappop(heap)
            else:
                call_id = next(iter(peer.calls))  # each peer's are in the order of their time
                started = peer.calls[call_id].started
                if started > before:
                    heap[0][0] = started
                    heapreplace(heap, heap[0])
                else:
                    peer.calls.pop(call_id).settle_failed(peer, Outcome.TIMEOUT)
        return budget
