"""A session of Engine.IO 4: packets by long polling, or by a WebSocket once there is one.

| state | event | next |
| --- | --- | --- |
| POLLING | a WebSocket with the session's id asks whether it may replace polling | PROBING |
| PROBING | the client sends `5` over it | STREAMING |
| PROBING | the WebSocket is lost | POLLING |
| POLLING, PROBING | we close the session | LEAVING |
| LEAVING | a poll takes what is left, or none comes in time | CLOSED |
| STREAMING | we close the session, or the WebSocket is lost | CLOSED |
| POLLING, PROBING, STREAMING | the client sends `1`, or is not heard for too long | CLOSED |

The session of a client that begins with a WebSocket is STREAMING from the start.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from enum import Enum, auto

import anyio

from busd.gateway.identity import Identity
from busd.gateway.limits import (
    STRANGER_FRAME_BYTES,
    UNCHARGED,
    Allowance,
    Budget,
    Holding,
    Slots,
)
from busd.gateway.places import Place
from busd.gateway.ws_connection import (
    FAILED,
    GOING_AWAY,
    OVERLOADED,
    RESTARTING,
    WebSocketConnection,
)
from busd.wire.driver import Promise, promise_maker

PING_TIMEOUT_SECONDS = 60.0
# Requests of a client that polls. At more, what there is to send is collected for a moment.
_REQUESTS_PER_SECOND, _REQUESTS_AT_ONCE = 50.0, 100.0
# Pings, pongs and the like. A client has to send one per ping of ours.
_SIGNS_PER_SECOND, _SIGNS_AT_ONCE = 10.0, 50.0
# At a time. A client needs a poll, a request with packets, and one WebSocket to replace them. It
# may leave some behind when its network changes.
_MAX_REQUESTS, _MAX_PROBES = 8, 4
TEMPORARY = (FAILED, RESTARTING, OVERLOADED)  # close codes after which a client is to come back
PING, NOOP, CLOSE = b"2", b"6", b"1"
SEPARATOR = b"\x1e"
_PACKET_BYTES = 48  # of an empty packet in memory
_MAX_PACKETS = 15  # python-engineio reads no more than 16 at a time


def _cost_of(packet: bytes) -> int:
    """Return the memory that a packet takes."""
    return len(packet) + _PACKET_BYTES


class State(Enum):
    """See the docstring of the module."""

    POLLING = auto()
    PROBING = auto()
    STREAMING = auto()
    LEAVING = auto()
    CLOSED = auto()


_NEXT = {
    State.POLLING: {State.PROBING, State.STREAMING, State.LEAVING, State.CLOSED},
    State.PROBING: {State.POLLING, State.STREAMING, State.LEAVING, State.CLOSED},
    State.STREAMING: {State.CLOSED},
    State.LEAVING: {State.CLOSED},
    State.CLOSED: set(),
}


class EngineSession:
    """The session of one client; what its messages mean is the business of others."""

    def __init__(
        self,
        sid: str,
        identity: Identity,
        ping_seconds: float,
        on_end: Callable[[EngineSession], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sid = sid
        self.identity = identity  # of the first request
        self.is_working = False  # on what the client has sent; nothing more is read meanwhile
        self.place: Place | None = None
        self.requests = Allowance(_REQUESTS_PER_SECOND, _REQUESTS_AT_ONCE)
        self.signs = Allowance(_SIGNS_PER_SECOND, _SIGNS_AT_ONCE)
        self.request_slots = Slots(_MAX_REQUESTS)
        self.probe_slots = Slots(_MAX_PROBES)
        self.max_payload_bytes = self._max_unsent_bytes = STRANGER_FRAME_BYTES
        self.input = Holding()
        self._state = State.POLLING
        self._silence_seconds = ping_seconds + PING_TIMEOUT_SECONDS
        self._on_end = on_end  # called when it is LEAVING, and when it is CLOSED
        self._clock = clock
        self._heard_at = clock()
        self._stream: WebSocketConnection | None = None
        self._output: deque[bytes] = deque()  # for the next polls
        self._output_bytes = 0
        self._output_holding = Holding()
        self._budget = UNCHARGED
        self._poll: Promise | None = None
        self._make_promise = promise_maker()
        self._may_return = False
        self._is_over = anyio.Event()

    @property
    def state(self) -> State:
        return self._state

    @property
    def is_open(self) -> bool:
        return self._state in (State.POLLING, State.PROBING, State.STREAMING)

    def _enter(self, state: State) -> bool:
        """Change the state; return False if there is no such transition."""
        if state not in _NEXT[self._state]:
            return False
        self._state = state
        if not self.is_open:
            self._is_over.set()
            self._on_end(self)
        return True

    async def pause(self, seconds: float) -> None:
        """Wait for so long, or until the session is over."""
        if seconds > 0:
            with anyio.move_on_after(seconds):
                await self._is_over.wait()

    def admit(self, max_payload_bytes: int, max_unsent_bytes: int, budget: Budget) -> None:
        """Set what the client may use."""
        self.max_payload_bytes, self._max_unsent_bytes = max_payload_bytes, max_unsent_bytes
        self._budget = budget
        self.input.move(budget)
        self._output_holding.move(budget)
        if self._stream is not None:
            self._stream.admit(max_payload_bytes, max_unsent_bytes, budget)

    # Output

    def send(self, packet: bytes) -> None:
        """Send a packet; close the session if the client does not take what it gets."""
        if self._state is State.STREAMING and self._stream is not None:
            self._stream.send_text(packet)
        elif self.is_open:
            self._output.append(packet)
            self._wake()
            if not self._count_output(_cost_of(packet)):
                self._clear_output()
                self.close(OVERLOADED, "the client does not read what it gets")

    async def await_output(self) -> bool:
        """Wait until there is something for a poll; return False if a later poll has come."""
        self._wake()
        self._poll = poll = self._make_promise()
        if not self._output and self._state is State.POLLING:
            await poll
        is_last = self._poll is poll
        if is_last:
            self._poll = None
        return is_last

    def take_output(self) -> bytes | None:
        """Return the payload that answers a poll; None: the session is over.

        To a client that is told so by CLOSE this is for good: it does not come back by itself. So
        one that is to come back finds out that its session does not exist any more.
        """
        packets = [self._output.popleft() for _ in range(min(len(self._output), _MAX_PACKETS))]
        self._count_output(-sum(map(_cost_of, packets)))
        if self._state is State.LEAVING and not self._output:
            if not self._may_return:
                packets.append(CLOSE)
            self._enter(State.CLOSED)
            if not packets:
                return None
        return SEPARATOR.join(packets or [NOOP])

    def wake(self) -> None:
        """End the poll that waits: its connection is lost."""
        self._wake()

    def _wake(self) -> None:
        if self._poll is not None and not self._poll.done():
            self._poll.set_result(None)

    def _count_output(self, change: int) -> bool:
        """Count what waits; return whether it may be so much."""
        self._output_bytes += change
        is_held = self._output_holding.hold(self._output_bytes)
        return is_held and self._output_bytes <= self._max_unsent_bytes

    def _clear_output(self) -> None:
        self._output.clear()
        self._count_output(-self._output_bytes)

    # Transports

    def probe(self, stream: WebSocketConnection) -> bool:
        """Let a WebSocket try to replace polling; return False if it may not."""
        if not self._enter(State.PROBING):
            return False
        stream.send_text(b"3probe")
        self._wake()  # the client waits for its last poll
        return True

    def end_probe(self) -> None:
        """Go on with polling."""
        if self._state is State.PROBING:
            self._enter(State.POLLING)

    def start_stream(self, stream: WebSocketConnection, first: bytes = b"") -> bool:
        """Go on with a WebSocket; return False if that is not possible."""
        if self.is_working or not self._enter(State.STREAMING):
            return False
        self._stream = stream
        stream.admit(self.max_payload_bytes, self._max_unsent_bytes, self._budget)
        for packet in [first, *self._output] if first else self._output:
            stream.send_text(packet)
        self._clear_output()
        return True

    # Its end

    def heard(self) -> None:
        """Note that the client is alive."""
        self._heard_at = self._clock()

    def ping(self) -> None:
        """Send a ping; close the session if the client was not heard for too long."""
        if self.is_working:
            self.heard()
        if self._state is State.LEAVING:
            self._enter(State.CLOSED)
        elif self._clock() - self._heard_at > self._silence_seconds:
            self.end()
        else:
            self.send(PING)

    def close(self, code: int, reason: str) -> None:
        """Close the session; by polling the client gets what is left."""
        self._may_return = code in TEMPORARY
        if self._enter(State.LEAVING):
            self._wake()
        elif self._stream is not None:
            self._stream.close(code, reason)
            self._enter(State.CLOSED)

    def end(self) -> None:
        """End the session: the client has left, or is lost."""
        self._clear_output()
        self._enter(State.CLOSED)
        self._wake()
        if self._stream is not None:
            self._stream.close(1000)

    def dismiss(self, rule: str, reason: str) -> None:
        """Close the session: what it was opened for did not follow in time."""
        self.close(GOING_AWAY, reason)

    def give_way(self) -> None:
        """Close the session: its place is needed."""
        self.end()
