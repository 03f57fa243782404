"""All connections of one bus: created for each accepted socket, swept when their time is up."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice, takewhile
from math import inf
from typing import Any

import structlog

from busd.errors import Busy, RequestError
from busd.wire.connection import NOBODY, Connection, WireLimits
from busd.wire.credentials import Credentials
from busd.wire.flushing import flush_touched
from busd.wire.http_gate import HttpGate
from busd.wire.interfaces import FrameReceiver
from busd.wire.sniff import Sniffer
from busd.wire.turns import Schedule, Turns

log = structlog.get_logger("busd.wire")

_PINGS_PER_SWEEP = 256  # 20,000 in 20 s, at four sweeps a second
_DROPS_PER_SWEEP = 512


class Connections:
    """The open connections and the list of those that have something to send.

    Connections that must initialize, close or be pinged soon are in queues ordered by time, so a
    sweep checks only those that are due. An initialized peer that uses lines is in none of them.
    """

    def __init__(
        self,
        limits: WireLimits,
        gate: HttpGate,
        make_session: Callable[[Connection], FrameReceiver],
        schedule: Schedule,
        clock: Callable[[], float] = time.monotonic,
        end_session: Callable[[Any], None] = lambda session: None,
        encode_refusal: Callable[[RequestError], bytes] = lambda fault: b"",
    ) -> None:
        self.limits = limits
        self.touched: list[Connection] = []
        self.turns = Turns(schedule)
        self.open: set[Connection] = set()
        self.encode_refusal = encode_refusal  # for a socket that gets no connection
        self._gate = gate
        self._make_session = make_session
        self._end_session = end_session
        self._clock = clock
        self._greeting: dict[Connection, float] = {}  # deadline to initialize
        self._closing: dict[Connection, float] = {}  # deadline to close
        self._pinged: dict[Connection, float] = {}  # time of the last ping

    def check_room(self) -> None:
        """Raise Busy if the maximum number of connections is open."""
        limit = self.limits.max_connections
        if len(self.open) >= limit:
            raise Busy("too many connections", rule="max_connections", limit=limit, retrySeconds=1)

    def make(self, remote: str, credentials: Credentials = NOBODY) -> Connection:
        """Create the connection of an accepted socket; it must initialize soon.

        Raise Busy if the maximum number of connections is open.
        """
        self.check_room()
        sniffer = Sniffer(self._gate)
        connection = Connection(
            sniffer,
            self.touched,
            self.turns,
            self.limits,
            remote,
            self._clock,
            self._forget,
            self._linger,
        )
        sniffer.attach(connection)
        connection.credentials = credentials
        connection.session = self._make_session(connection)
        now = self._clock()
        connection.deadline = now + self.limits.first_request_seconds
        self._greeting[connection] = connection.deadline
        self._pinged[connection] = now
        self.open.add(connection)
        return connection

    def _linger(self, connection: Connection) -> None:
        self._greeting.pop(connection, None)
        self._closing[connection] = connection.deadline

    def _forget(self, connection: Connection) -> None:
        if connection in self.open:
            self.open.discard(connection)
            for queue in (self._greeting, self._closing, self._pinged):
                queue.pop(connection, None)
            self._end_session(connection.session)

    def change(self, limits: WireLimits) -> None:
        """Change the limits while running, also for open connections."""
        self.limits = limits
        for connection in list(self.open):
            connection.limits = limits
            connection.set_mark()

    def sweep(self) -> None:
        """Drop the connections whose time is up and ping the quiet ones."""
        now = self._clock()
        self._drop_late(now)
        self._ping_quiet(now)
        self.flush()

    def _drop_late(self, now: float) -> None:
        for queue in (self._greeting, self._closing):
            for connection in _due(queue, now, _DROPS_PER_SWEEP):
                del queue[connection]
                if connection.deadline > now:  # it has initialized
                    continue
                if not connection.is_closed:
                    log.info("connection.closed", remote=connection.remote, reason="no initialize")
                connection.abort("no initialize in time")

    def _ping_quiet(self, now: float) -> None:
        for connection in _due(self._pinged, now - self.limits.ping_seconds, _PINGS_PER_SWEEP):
            del self._pinged[connection]
            # Lines have no ping: TCP keep-alive detects a dead peer.
            if connection.is_closed or (connection.deadline == inf and not connection.has_pings):
                continue
            connection.ping()
            self._pinged[connection] = now

    def flush(self) -> None:
        flush_touched(self.touched, self.turns)

    def close_all(self) -> None:
        """Close every connection."""
        for connection in list(self.open):
            connection.close(1001, "the bus is stopping")


def _due(queue: dict[Connection, float], now: float, count: int) -> list[Connection]:
    """Return the first connections of a queue that are due, but not too many at once."""
    return [
        each for each, _ in islice(takewhile(lambda item: item[1] <= now, queue.items()), count)
    ]
