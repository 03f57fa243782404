"""Messages that are done when two answers are in: the server's, and their consumer's ack."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.payload import BOX_MESSAGES
from bench.window import Window

# Publishes to an address, or to a box of that number, and returns when the server has answered.
Publish = Callable[[int], Awaitable[None]]


class Slots:
    """One slot per message in flight; whoever consumes a message marks its slot as acked."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.acked = [asyncio.Event() for _ in range(window.job.workload.in_flight)]

    def mark(self, slot: int) -> None:
        """Note that the message of a slot was consumed and acked."""
        self.window.handled += 1
        self.acked[slot].set()

    async def keep_publishing(self, publish: Publish, slot: int) -> None:
        """Keep one message in flight while the window is open, to the number of its slot."""
        window, acked = self.window, self.acked[slot]
        while window.is_open:
            start = time.perf_counter()
            window.sent += 1
            await publish(slot)
            await acked.wait()
            acked.clear()
            window.latencies.append(time.perf_counter() - start)


async def keep_storing(window: Window, publish: Publish) -> None:
    """Keep one message in flight that nobody consumes while the window is open."""
    while window.is_open:
        start = time.perf_counter()
        box = window.sent // BOX_MESSAGES
        window.sent += 1
        await publish(box)
        window.latencies.append(time.perf_counter() - start)
