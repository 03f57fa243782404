"""All connections of one bus: made here for each accepted socket, swept here when time is up."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from busd.wire.connection import Connection, Session, WireLimits, flush_touched
from busd.wire.doorman import Doorman
from busd.wire.driver import scheduler
from busd.wire.sniff import Sniffer
from busd.wire.turns import Schedule, Turns

log = structlog.get_logger("busd.wire")


class Connections:
    """The open connections and the list of those that have something to send."""

    def __init__(
        self,
        limits: WireLimits,
        doorman: Doorman,
        make_session: Callable[[Connection], Session],
        clock: Callable[[], float] = time.monotonic,
        make_schedule: Callable[[], Schedule] = scheduler,
    ) -> None:
        self.limits = limits
        self.touched: list[Connection] = []
        self.turns = Turns(make_schedule)
        self.open: set[Connection] = set()
        self._doorman = doorman
        self._make_session = make_session
        self._clock = clock
        self._next_ping = clock() + limits.ping_seconds

    @property
    def has_room(self) -> bool:
        return len(self.open) < self.limits.max_connections

    def make(self, remote: str) -> Connection:
        """Make the connection for a socket that somebody opened; it must initialize soon."""
        sniffer = Sniffer(self._doorman)
        connection = Connection(
            sniffer,
            self.touched,
            self.turns,
            self.limits,
            remote,
            self._clock,
            self.open.discard,
        )
        sniffer.attach(connection)
        connection.deadline = self._clock() + self.limits.first_request_seconds
        connection.session = self._make_session(connection)
        self.open.add(connection)
        return connection

    def change(self, limits: WireLimits) -> None:
        """Take new limits while running; they hold for open connections, too."""
        self.limits = limits
        self._next_ping = min(self._next_ping, self._clock() + limits.ping_seconds)
        for connection in list(self.open):
            connection.limits = limits
            connection.transport.set_write_buffer_limits(high=limits.max_queue_bytes)

    def sweep(self) -> None:
        """Drop the connections whose time is up and ping the quiet ones."""
        now = self._clock()
        for connection in [c for c in self.open if c.deadline <= now]:
            if not connection.is_closed:
                log.info("connection.closed", remote=connection.remote, reason="no initialize")
            connection.abort("no initialize in time")
        if now >= self._next_ping:
            self._next_ping = now + self.limits.ping_seconds
            for connection in list(self.open):
                if not connection.is_closed:
                    connection.ping()
        self.flush()

    def flush(self) -> None:
        flush_touched(self.touched)

    def close_all(self) -> None:
        """Say goodbye to everybody."""
        for connection in list(self.open):
            connection.close(1001, "the bus is stopping")
