"""End to end through nats-py: request and reply as its users write them, both ends in one process.

Bodies are ready-made bytes: nats-py leaves JSON to its users, and is measured without that work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.job import Job, LoadError, Sample
from bench.payload import ACK, make_payload
from bench.window import Window


async def run_load(job: Job) -> Sample:
    """Connect the pairs, start the traffic, and measure it."""
    window = Window(job)
    async with AsyncExitStack() as stack:
        senders: list[Client] = []
        for pair in range(job.workload.pairs):
            receiver = await connect(job, stack)
            await receiver.subscribe(f"bench.r{pair}", cb=make_handler(window))
            await receiver.flush()
            senders.append(await connect(job, stack))
        async with asyncio.TaskGroup() as tasks:
            for pair, sender in enumerate(senders):
                for _ in range(job.workload.in_flight):
                    tasks.create_task(keep_sending(window, sender, f"bench.r{pair}"))
            return await window.run()


async def connect(job: Job, stack: AsyncExitStack) -> Client:
    """Connect a client that is closed with the stack."""
    client = await nats.connect(job.address, allow_reconnect=False)
    stack.push_async_callback(client.close)
    return client


def make_handler(window: Window) -> Callable[[Msg], Awaitable[None]]:
    """A receiver that replies to every request with success."""

    async def handle(message: Msg) -> None:
        window.handled += 1
        await message.respond(ACK)

    return handle


async def keep_sending(window: Window, client: Client, subject: str) -> None:
    """Keep one request in flight while the window is open."""
    payload = make_payload(window.job.workload.payload_bytes)
    while window.is_open:
        start = time.perf_counter()
        window.sent += 1
        reply = await client.request(subject, payload, timeout=30)
        if reply.data != ACK:
            raise LoadError(f"failed reply: {reply.data[:200]!r}")
        window.latencies.append(time.perf_counter() - start)
