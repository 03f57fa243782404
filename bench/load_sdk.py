"""End to end through our own SDK: `Client` to daemon to `Client`, both ends in one process."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from bench.job import Job, LoadError, Sample
from bench.payload import BOX_MESSAGES, make_payload
from bench.window import Window
from busd import Client, Incoming

# What a handler returns is the payload of its ack.
ANSWER = {"type": "bench", "content": {"text": "ok"}}
DURABLE: dict[str, Any] = {"durable": True}  # any: the options of `send` have several types


async def run_load(job: Job) -> Sample:
    """Connect the pairs, start the traffic, and measure it."""
    window = Window(job)
    async with AsyncExitStack() as stack:
        senders: list[Client] = []
        for pair in range(job.workload.pairs):
            if job.workload.receivers:
                receiver = Client(f"bench:r{pair}", address=job.address)
                add_handler(window, receiver)
                await stack.enter_async_context(receiver)
            sender = Client(f"bench:s{pair}", address=job.address)
            senders.append(await stack.enter_async_context(sender))
        keep_on = keep_sending if job.workload.receivers else keep_storing
        async with asyncio.TaskGroup() as tasks:
            for pair, sender in enumerate(senders):
                for _ in range(job.workload.in_flight):
                    tasks.create_task(keep_on(window, sender, f"bench:r{pair}"))
            return await window.run()


def add_handler(window: Window, client: Client) -> None:
    """Make a client answer every message with success."""

    @client.on("bench")
    async def handle(message: Incoming) -> dict[str, Any]:  # any JSON object
        window.handled += 1
        return ANSWER


async def keep_sending(window: Window, client: Client, to: str) -> None:
    """Keep one message in flight while the window is open."""
    payload = msgspec.json.decode(make_payload(window.job.workload.payload_bytes))
    options = DURABLE if window.job.workload.is_durable else {}
    while window.is_open:
        start = time.perf_counter()
        window.sent += 1
        receipt = await client.send(to, payload, **options)
        if len(receipt.acks) != 1 or not receipt.acks[0].success:
            raise LoadError(f"failed ack: {[ack.message for ack in receipt.acks]}")
        window.latencies.append(time.perf_counter() - start)


async def keep_storing(window: Window, client: Client, to: str) -> None:
    """Keep one durable message in flight to addresses where nobody is."""
    payload = msgspec.json.decode(make_payload(window.job.workload.payload_bytes))
    while window.is_open:
        start = time.perf_counter()
        address = f"{to}:{window.sent // BOX_MESSAGES}"
        window.sent += 1
        receipt = await client.send(address, payload, **DURABLE)
        if receipt.undelivered != "kept":
            raise LoadError(f"not kept: {receipt}")
        window.latencies.append(time.perf_counter() - start)
