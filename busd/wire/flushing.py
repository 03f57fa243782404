"""Flushing: write out the connections that have something to send, once each per chunk.

A message to thousands of peers would block the loop for as long as the kernel takes to copy it
thousands of times. So if there are many connections, each round of the loop writes out a few of
them, and the sender is not read until all are done, so that it cannot cause more meanwhile. Later
frames to a connection that waits are written at once, after those that wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING

from busd.wire.turns import Turns

if TYPE_CHECKING:
    from busd.wire.connection import Connection

AT_ONCE = 128  # connections
_PER_ROUND = 32  # of 60 KB each take 2.5 ms


def flush_touched(
    touched: list[Connection], turns: Turns, sender: Connection | None = None
) -> None:
    """Write out, once each, the connections that have something to send."""
    if len(touched) > AT_ONCE:
        _LongFlush(touched, turns, sender)
        return
    for connection in touched:
        try:
            connection.flush()
        except Exception:
            # Must affect this connection only, not those after it in the list.
            connection.session.on_fault()
            connection.abort("our fault")
    touched.clear()


class _LongFlush:
    """Many connections that are written out in turns."""

    def __init__(self, touched: list[Connection], turns: Turns, sender: Connection | None) -> None:
        self._waiting = deque(touched)
        touched.clear()
        for connection in self._waiting:
            connection.put_off()
        self._touched = touched
        self._turns = turns
        self._sender = sender
        if sender is not None:
            sender.hold_back()
        turns.add(self)

    @property
    def queue(self) -> Hashable:
        return "flush", None if self._sender is None else self._sender.meter

    def take_turn(self) -> None:
        """Write out the next few connections; uvloop writes after this round, so it ends here."""
        count = min(_PER_ROUND, len(self._waiting))
        flush_touched([self._waiting.popleft() for _ in range(count)], self._turns)
        flush_touched(self._touched, self._turns)
        self._turns.end_round()
        if self._waiting:
            self._turns.add(self)
        elif self._sender is not None:
            self._sender.go_on()
