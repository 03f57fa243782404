"""One end of bare traffic: a connection that is ready, and is now read and written by the loop."""

from __future__ import annotations

import asyncio
import socket
from abc import abstractmethod
from collections.abc import Sequence
from typing import cast

import msgspec

from bench.job import LoadError, Sample
from bench.window import Window

# What a server can make a generator trip over; anything else is a fault of the generator itself.
SERVER_FAULTS = (LoadError, msgspec.MsgspecError, LookupError, ValueError)


class Party(asyncio.Protocol):
    """A sender or a receiver; the first fault of any of them ends the run."""

    def __init__(self, window: Window) -> None:
        self.window = window

    async def attach(self, connection: socket.socket) -> None:
        """Let the loop read and write a connected socket for this party."""
        await asyncio.get_running_loop().create_connection(lambda: self, sock=connection)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the run if the server hangs up in the middle."""
        self.window.fail(f"connection lost: {exc}")

    def data_received(self, data: bytes) -> None:
        """Take a chunk; a fault ends the run."""
        try:
            self.take(data)
        except SERVER_FAULTS as fault:
            self.window.fail(f"{type(fault).__name__}: {fault}")

    @abstractmethod
    def take(self, chunk: bytes) -> None:
        """Handle what is whole in a chunk, and write at most once."""


class SendingParty(Party):
    """A party that keeps a number of messages in flight."""

    @abstractmethod
    def send(self, count: int) -> None:
        """Send that many messages in one write."""


async def measure_traffic(window: Window, senders: Sequence[SendingParty]) -> Sample:
    """Start all senders, and measure what comes of it."""
    for sender in senders:
        sender.send(window.job.workload.in_flight)
    return await window.run()
