"""Memory of a server per idle connection: joined, subscribed to its own name, then silent."""

from __future__ import annotations

import asyncio
import socket

from bench.job import Job, LoadError, Sample
from bench.link import Link
from bench.load_nats import open_nats
from bench.meter import read_resident_bytes

# Opened first and not counted: they make the server import and allocate what any connection needs.
FIRST_CONNECTIONS = 20
SETTLE_SECONDS = 0.5


async def run_load(job: Job) -> Sample:
    """Open the connections, and give back by how much each one made the server grow."""
    count = job.workload.idle_connections
    sockets = [open_idle(job, number) for number in range(FIRST_CONNECTIONS)]
    await asyncio.sleep(SETTLE_SECONDS)
    before = read_resident_bytes(job.server_pid)
    sockets += [open_idle(job, FIRST_CONNECTIONS + number) for number in range(count)]
    await asyncio.sleep(SETTLE_SECONDS)
    after = read_resident_bytes(job.server_pid)
    lost = sum(has_ended(connection) for connection in sockets)
    if lost:
        raise LoadError(f"the server closed {lost} of {len(sockets)} idle connections")
    return Sample(kib_per_connection=(after - before) / count / 1024, acked=count)


def open_idle(job: Job, number: int) -> socket.socket:
    """Open one connection that has said who it is."""
    if job.client == "nats":
        return open_nats(job.address, f"idle{number}", [f"idle.{number}"])
    return Link(job.address, f"idle:{number}").socket


def has_ended(connection: socket.socket) -> bool:
    """Whether the server has hung up."""
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
