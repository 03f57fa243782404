"""NATS JetStream end to end through nats-py: publish with ack, and a push consumer that acks.

The stream has the defaults: messages stay after their ack, and the consumer's acks are written to
disk later. The server does not confirm them; that all of them arrived is checked at the end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, StorageType

from bench.job import Job, LoadError, Sample
from bench.load_nats_py import connect
from bench.payload import make_payload
from bench.slots import Publish, Slots, keep_storing
from bench.window import DRAIN_SECONDS, Window

STREAM = "bench"
READER = "reader"
TIMEOUT_SECONDS = 30.0


async def run_load(job: Job) -> Sample:
    """Create the stream, start the traffic, and measure it."""
    window = Window(job)
    slots = Slots(window)
    async with AsyncExitStack() as stack:
        stream = (await connect(job, stack)).jetstream()
        await stream.add_stream(name=STREAM, subjects=["bench.*"], storage=StorageType.FILE)
        if job.workload.receivers:
            await add_consumer((await connect(job, stack)).jetstream(), slots)
        publish = make_publish(stream, job.workload.payload_bytes)
        async with asyncio.TaskGroup() as tasks:
            for slot in range(job.workload.in_flight):
                if job.workload.receivers:
                    tasks.create_task(slots.keep_publishing(publish, slot))
                else:
                    tasks.create_task(keep_storing(window, publish))
            sample = await window.run()
        await check_stream(stream, window)
        return sample


def make_publish(stream: JetStreamContext, payload_bytes: int) -> Publish:
    """Return what publishes a message and waits for the server's ack."""
    payload = make_payload(payload_bytes)

    async def publish(number: int) -> None:
        # Raises if the server answers with an error.
        await stream.publish(f"bench.{number}", payload, timeout=TIMEOUT_SECONDS)

    return publish


async def add_consumer(stream: JetStreamContext, slots: Slots) -> None:
    """Add a push consumer that acks each message; the last token of a subject is the slot."""
    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT)
    handle = make_handler(slots)
    await stream.subscribe("bench.*", durable=READER, cb=handle, manual_ack=True, config=config)


def make_handler(slots: Slots) -> Callable[[Msg], Awaitable[None]]:
    """Return a receiver that acks every message."""

    async def handle(message: Msg) -> None:
        await message.ack()
        slots.mark(int(message.subject.rpartition(".")[2]))

    return handle


async def check_stream(stream: JetStreamContext, window: Window) -> None:
    """Refuse a run whose messages are not all in the stream, or not all acked."""
    stored = (await stream.stream_info(STREAM)).state.messages
    if stored != window.sent:
        raise LoadError(f"{window.sent} messages sent, but {stored} in the stream")
    deadline = time.perf_counter() + DRAIN_SECONDS
    while window.job.workload.receivers:
        info = await stream.consumer_info(STREAM, READER)
        left = (info.num_ack_pending or 0) + (info.num_pending or 0)
        if not left:
            break
        if time.perf_counter() > deadline:
            raise LoadError(f"{left} messages of the stream are not acked")
        await asyncio.sleep(0.01)
