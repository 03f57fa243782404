"""Redis Streams end to end through redis-py: XADD, and a consumer group that acks.

Each message in flight has a connection from the client's pool, as it is for users who call it from
many tasks. The server syncs once for all commands of one round of its loop.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis.asyncio import Redis

from bench.job import Job, LoadError, Sample
from bench.payload import make_payload
from bench.slots import Publish, Slots, keep_storing
from bench.window import Window

KEY = "bench"
GROUP = "readers"
READER = "reader"
READ_COUNT = 64
BLOCK_MILLISECONDS = 1000


async def run_load(job: Job) -> Sample:
    """Start the traffic, and measure it."""
    window = Window(job)
    slots = Slots(window)
    connections = job.workload.in_flight + 2
    path = job.address.removeprefix("unix:")
    async with Redis(unix_socket_path=path, max_connections=connections) as client:
        async with asyncio.TaskGroup() as tasks:
            if job.workload.receivers:
                await client.xgroup_create(KEY, GROUP, "$", mkstream=True)
                reading = tasks.create_task(consume(client, slots))
            for slot in range(job.workload.in_flight):
                if job.workload.receivers:
                    publish = make_publish(client, job.workload.payload_bytes, KEY)
                    tasks.create_task(slots.keep_publishing(publish, slot))
                else:
                    publish = make_publish(client, job.workload.payload_bytes)
                    tasks.create_task(keep_storing(window, publish))
            sample = await window.run()
            if job.workload.receivers:
                reading.cancel()
        await check_streams(client, window)
        return sample


def make_publish(client: Redis, payload_bytes: int, key: str = "") -> Publish:
    """Return what appends to one stream, with the number as the field, or to one per number."""
    payload = make_payload(payload_bytes)

    async def append_to_one(slot: int) -> None:
        await client.xadd(key, {str(slot): payload})

    async def append_to_box(box: int) -> None:
        await client.xadd(f"{KEY}:{box}", {"payload": payload})

    return append_to_one if key else append_to_box


async def consume(client: Redis, slots: Slots) -> None:
    """Read the stream as one of a group, and ack each message; the field is its slot."""
    while True:
        # Any: redis-py types what a command returns as whatever any command may return.
        found: Any = await client.xreadgroup(
            GROUP, READER, {KEY: ">"}, count=READ_COUNT, block=BLOCK_MILLISECONDS
        )
        for _, entries in found:
            acked = await client.xack(KEY, GROUP, *(number for number, _ in entries))
            if acked != len(entries):
                raise LoadError(f"{len(entries)} messages read, but {acked} acked")
            for _, fields in entries:
                slots.mark(int(next(iter(fields))))


async def check_streams(client: Redis, window: Window) -> None:
    """Refuse a run whose messages are not all in the streams, or not all acked."""
    keys = await client.keys(f"{KEY}*")
    stored = sum([await client.xlen(key) for key in keys])
    if stored != window.sent:
        raise LoadError(f"{window.sent} messages sent, but {stored} in the streams")
    if window.job.workload.receivers:
        pending: Any = await client.xpending(KEY, GROUP)
        if pending["pending"]:
            raise LoadError(f"{pending['pending']} messages are not acked")
