"""The bridge's connection to the bus: made again until there is a bus, kept by the client then."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio

from busd.client.client import Client
from busd.client.connect import pauses
from busd.errors import BusdError, BusForbidden, BusUnreachable, Busy, CallRefused, NoAnswer

log = logging.getLogger("busd.bridge")


class BusLink:
    """The client of a bridge, subscribed to `patterns`."""

    def __init__(self, make_client: Callable[[], Client], patterns: tuple[str, ...]) -> None:
        self._make_client = make_client
        self._patterns = patterns
        self._client: Client | None = None
        self.is_connected = False
        self.failure: BusdError | None = None  # why the bus has refused us permanently

    def open(self) -> None:
        self._changed = anyio.Event()
        self.failure = None

    async def run(self) -> None:
        """Stay connected until cancelled, or until the bus refuses us permanently."""
        waits = pauses()
        is_told = False
        while self.failure is None:
            try:
                await self._connect()
            except BusForbidden as problem:
                self._fail(problem)
            except CallRefused as problem:
                if problem.code != Busy.code:
                    self._fail(problem)
            except BusdError as problem:
                if not is_told and isinstance(problem, BusUnreachable | NoAnswer):
                    log.warning("%s; waiting for it", problem)
                    is_told = True
            finally:
                self._client, self.is_connected = None, False
            await anyio.sleep(next(waits))

    async def _connect(self) -> None:
        """Serve with one client; it reconnects by itself."""
        client = self._make_client()
        client.on_line(self._on_line)
        async with client:
            for pattern in self._patterns:
                await client.subscribe(pattern)
            self._client, self.is_connected = client, True
            self._announce()
            await client.run_forever()

    def _on_line(self, is_open: bool) -> None:
        self.is_connected = is_open

    def _fail(self, problem: BusdError) -> None:
        self.failure = problem
        self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def client(self) -> Client:
        """Return the client as soon as there is one; raise BusdError if the bus refuses us."""
        while self._client is None:
            if self.failure is not None:
                raise self.failure
            await self._changed.wait()
        return self._client

    async def wait_for_end(self) -> None:
        """Wait until the bus refuses us permanently; raise why."""
        while self.failure is None:
            await self._changed.wait()
        raise self.failure
