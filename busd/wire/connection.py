"""A connection: a pipe of frames between a transport below and a session above.

The seam to the transport is asyncio's own pair: a transport calls `data_received`, `eof_received`,
`pause_writing`, `resume_writing` and `connection_lost`; the connection calls `write`, `write_eof`,
`abort`, `pause_reading`, `resume_reading`. On asyncio and uvloop their transports fit as they are,
on trio `SocketTransport` does (`trio_transport.py`), in tests an in-memory one.

Nothing here waits. Frames to send are put on a list, the connection on the list of touched ones,
and whoever fed the chunk flushes each touched connection once.

A chunk that takes longer than a slice is processed in several turns (`turns.py`). The rest waits
as a queue of iterators of frames; chunks that arrive meanwhile, and the end of the stream, are
appended to it. All steps of a frame that takes several (a batch) are processed before the next
frame. While anything is left to process, the transport is not read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from itertools import chain
from math import inf
from time import monotonic
from typing import Annotated

import msgspec

from busd.errors import ProtocolViolation
from busd.quantities import WORDS, Count, MemoryBytes, Seconds, about
from busd.wire.credentials import Credentials
from busd.wire.flushing import AT_ONCE, flush_touched
from busd.wire.interfaces import (
    NO_METER,
    Discard,
    Framer,
    FrameReceiver,
    Meter,
    NoTransport,
    Transport,
)
from busd.wire.turns import LOOK_BYTES, QUICK_BYTES, Turns

_MIB = 1024 * 1024
_SLOW_BYTES = 16_384  # more than this unread: what waits for the peer is measured and counted
MIN_FRAME_BYTES = 1_024  # enough for the answer to `initialize` and for every error
FrameBytes = Annotated[int, msgspec.Meta(ge=MIN_FRAME_BYTES, le=2**30, extra={WORDS: "1 GiB"})]
NOBODY = Credentials()
# A chunk as large as this ends a turn: uvloop would read up to 32 in a row.
_MANY_BYTES = 2 * 65_536
_SHORT_BYTES = 8_192  # a chunk up to this size is short
_UNINITIALIZED = "uninitialized"
_END = b"end"  # distinguished from a frame by its identity


class WireLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much one connection may send, hold and wait."""

    max_frame_bytes: Annotated[FrameBytes, about("Largest frame.")] = _MIB
    max_hello_bytes: Annotated[MemoryBytes, about("Largest frame before `initialize`.")] = 65_536
    max_queue_bytes: Annotated[MemoryBytes, about("Unread bytes that make a peer busy.")] = _MIB
    max_unread_bytes: Annotated[
        MemoryBytes, about("Unread bytes at which a peer is disconnected.")
    ] = 16 * _MIB
    max_connections: Annotated[Count, about("Maximum number of open connections.")] = 20_000
    first_request_seconds: Annotated[
        Seconds, about("Time a new connection has to send `initialize`.")
    ] = 10.0
    linger_seconds: Annotated[
        Seconds, about("Time a connection that is being closed has to read the last frames.")
    ] = 2.0
    ping_seconds: Annotated[Seconds, about("Interval of pings on idle WebSockets.")] = 30.0


class Connection:
    """One pipe of frames; made by a listener or a client, driven by a transport."""

    __slots__ = (
        "_is_held_back",
        "_must_look",
        "_on_closing",
        "_on_gone",
        "_put_off",
        "_reads_at_ping",
        "_rest",
        "_rest_bytes",
        "_steps",
        "_touched",
        "_turn_ends",
        "_turn_read",
        "_unsaid",
        "_waiting_bytes",
        "clock",
        "credentials",
        "deadline",
        "framer",
        "has_ended",
        "held_bytes",
        "is_clogged",
        "is_closed",
        "is_slow",
        "limits",
        "meter",
        "out",
        "quiet_rounds",
        "reads",
        "remote",
        "session",
        "transport",
        "turns",
        "unread_bytes",
    )

    session: FrameReceiver

    def __init__(
        self,
        framer: Framer,
        touched: list[Connection],
        turns: Turns,
        limits: WireLimits,
        remote: str = "",
        clock: Callable[[], float] = time.monotonic,
        on_gone: Callable[[Connection], None] = lambda connection: None,
        on_closing: Callable[[Connection], None] = lambda connection: None,
    ) -> None:
        self.framer = framer
        self.transport: Transport = NoTransport()
        self.limits = limits
        self.remote = remote
        self.clock = clock
        self.credentials = NOBODY
        # By the sweeper's clock; after it the connection is aborted. inf once it has initialized.
        self.deadline = inf
        self.reads = 0  # chunks received; a changed count shows that the peer is alive
        self._unsaid = 0  # chunks without a whole frame: parts of one, WebSocket pings and pongs
        self.quiet_rounds = 0
        self._reads_at_ping = 0
        self.meter: Meter = NO_METER
        self.is_slow = False
        self.held_bytes = 0  # received bytes reported to the meter; 0 if there are few
        self.unread_bytes = 0  # as reported to the meter; 0 unless the peer is slow
        self.is_clogged = False
        self.is_closed = False
        self.has_ended = False
        # Frames to write with the next flush; always the same list. While it is not empty,
        # a session may append to it instead of calling `send` (0.04 µs per frame).
        self.out: list[bytes] = []
        self._touched = touched
        self._on_gone = on_gone
        self.turns = turns
        self._rest: list[Iterator[bytes | None]] = []  # frames still to be processed
        self._rest_bytes = 0  # size of the chunks that contain them
        self._waiting_bytes = 0  # the same, plus what TLS has not decrypted yet
        # The remaining steps of the last received frame; processed before `_rest`.
        self._steps: Iterator[bytes | None] | None = None
        self._must_look = False  # check the clock after this frame
        self._is_held_back = False  # until its messages to many peers are written out
        self._put_off: tuple[bytes, ...] = ()  # frames to be written out in turns
        self._turn_ends = 0.0
        self._turn_read = 0  # the chunk at which the turn started (first check of the clock)
        self._on_closing = on_closing

    # Called by the transport

    def connection_made(self, transport: Transport) -> None:
        self.transport = transport
        if self.is_closed:  # closed before it was made: the bus stopped meanwhile
            transport.abort()
            return
        self.set_mark()

    def set_mark(self) -> None:
        """Set the level of waiting bytes above which the transport reports a slow reader."""
        high = min(_SLOW_BYTES, self.limits.max_queue_bytes)
        self.transport.set_write_buffer_limits(high=high)

    def data_received(self, data: bytes) -> None:
        """Pass the frames of this chunk up, for at most a slice, and flush touched connections."""
        self.reads += 1
        size = len(data)
        try:
            if self._rest:
                self._feed_later(data)
                return
            if size > QUICK_BYTES or self.deadline != inf:
                turns = self.turns
                turns.unseen_bytes += size
                # This round of the loop has used up its time already.
                if (
                    turns.unseen_bytes > LOOK_BYTES or self.deadline != inf
                ) and turns.is_round_over():
                    self._feed_later(data)
                    return
            receive = self.session.receive
            frames = iter(self.framer.feed(data))
            frame = None
            for frame in frames:
                if frame:
                    receive(frame)
                    if not self._must_look:
                        continue
                if self._steps is not None:
                    self._keep(frames, size)
                    self._work_off()
                    break
                if self._is_turn_over():
                    following = next(frames, _END)
                    if following is _END:
                        continue  # nothing is left that could wait
                    self._keep(chain((following,), frames), size)
                    self._wait_for_turn()
                    break
            else:
                if not frame:
                    self._unsaid += 1
                framer = self.framer  # another one if the first byte has decided, or on closing
                if framer.wants_flush or framer.violation is not None:
                    self._judge_framing()
                if framer.held_bytes or self.held_bytes:
                    self._count_held()
                if size >= _MANY_BYTES and not self.is_closed:
                    self._wait_for_turn()
        except Exception:
            self._fail()
        flush_touched(self._touched, self.turns, self)

    def hold(self, size: int) -> None:
        """Count received bytes that wait to be processed, here or in the transport."""
        self._waiting_bytes += size
        self._count_held()

    def _count_held(self) -> None:
        """Count received bytes not processed yet; end the connection if there are too many."""
        size = self.framer.held_bytes + self._waiting_bytes
        if size <= _SLOW_BYTES and not self.held_bytes:
            return
        grown, self.held_bytes = size - self.held_bytes, size
        if self.meter.add_held(grown) and grown > 0 and not self.is_closed:
            reason = "all connections of this identity hold as much as they may (quota.memory)"
            violation = ProtocolViolation(reason, rule="quota.memory", close_code=1008)
            self.session.on_violation(violation)

    def eof_received(self) -> bool:
        """Handle the end of the stream; True keeps our half open for the answers."""
        self.has_ended = True
        if not self.is_closed:
            self.when_done(self.session.on_end)
        return not self.is_closed

    def pause_writing(self) -> None:
        """Start to measure what the peer leaves unread."""
        self.is_slow = True
        self._measure()

    def _measure(self) -> None:
        """Count the unread bytes; stop reading from the peer if there are too many.

        It must not cause more output while it does not read, and neither must other connections
        of its identity if the quota of that identity is used up.
        """
        size = self.transport.get_write_buffer_size()
        grown, self.unread_bytes = size - self.unread_bytes, size
        is_too_much = self.meter.add_unread(grown)
        if not self.is_clogged and (is_too_much or size > self.limits.max_queue_bytes):
            self.is_clogged = True
            self._must_look = True  # nor may it with what it has sent already
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.is_slow = False
        self.meter.add_unread(-self.unread_bytes)
        self.unread_bytes = 0
        if self.is_clogged:
            self.is_clogged = False
            if self._rest and not self.is_closed:
                self.turns.add(self)
            else:
                self._read_on()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End the session, after the frames that the peer sent before it disconnected."""
        self.transport = NoTransport()
        self.is_clogged = False
        self.has_ended = True
        if self._rest:
            self.turns.add(self)
        self.when_done(partial(self._part, "lost" if exc is None else str(exc)))
        self._on_gone(self)

    # Turns

    def charge(self) -> None:
        """Check the clock after this frame, because it is an expensive one."""
        self._must_look = True

    def work_off(self, steps: Iterator[bytes | None]) -> None:
        """Process the steps of a frame in turns, before the next frame.

        A step is the code up to the next `yield`, which yields None. To be called while that
        frame is received.
        """
        self._steps = steps
        self._must_look = True

    def when_done(self, action: Callable[[], None]) -> None:
        """Run `action` after everything that was received before."""
        if self._rest:
            self._rest.append(_run(action))
            return
        try:
            action()
        except Exception:
            self._fail()
        flush_touched(self._touched, self.turns, self)

    def take_turn(self) -> None:
        """Continue with the rest for another slice."""
        if not self._is_held:  # else resume_writing() continues
            self._start_turn()
            try:
                self._work_off()
            except Exception:
                self._fail()
            flush_touched(self._touched, self.turns, self)

    def _start_turn(self) -> None:
        self._turn_read = self.reads
        self._turn_ends = monotonic() + self.turns.slice_seconds

    def _work_off(self) -> None:
        """Process the rest until none is left or the turn is over."""
        rest, receive = self._rest, self.session.receive
        while rest:
            if self._is_held:
                self._wait_for_turn()
                return
            frames = self._steps or rest[0]
            for frame in frames:
                if frame:
                    receive(frame)
                    if not self._must_look:
                        continue
                if not rest or self._steps not in (None, frames):
                    break  # closed, or steps have to be processed first
                if self._is_turn_over():
                    self._wait_for_turn()
                    return
            else:
                self._finish(frames)
        self._read_on()

    def _finish(self, frames: Iterator[bytes | None]) -> None:
        """Remove frames that are processed from the rest."""
        if frames is self._steps:
            self._steps = None
        elif self._rest:  # else the connection was closed
            del self._rest[0]
            self._judge_framing()
            if not self._rest:
                size, self._rest_bytes = self._rest_bytes, 0
                self.hold(-size)

    def _is_turn_over(self) -> bool:
        """Check the clock; the first check of a turn starts it, unless others wait already."""
        self._must_look = False
        if self._is_held or len(self._touched) > AT_ONCE:
            return True
        if self._turn_read != self.reads:
            self._start_turn()
            return self.turns.is_busy or self.turns.is_round_over()
        return monotonic() >= self._turn_ends

    def _wait_for_turn(self) -> None:
        """Queue for another turn, and read nothing more until the rest is processed."""
        if self.framer.wants_flush:
            self._touched.append(self)
        self.transport.pause_reading()
        if not self._is_held:
            self.turns.add(self)

    @property
    def _is_held(self) -> bool:
        """True while the next frame must wait because too much output is not written yet.

        If the reason is that the peer does not read, a frame in progress is still finished: a
        batch has one answer, and its size is bounded.
        """
        return self._is_held_back or (self.is_clogged and self._steps is None)

    @property
    def queue(self) -> Hashable:
        """The queue in which this connection waits for its turn: see `turns.py`."""
        if self.deadline != inf:
            return _UNINITIALIZED
        return self.meter, self._rest_bytes > _SHORT_BYTES

    def hold_back(self) -> None:
        """Stop reading from the peer until `go_on`."""
        self._is_held_back = True
        self.transport.pause_reading()

    def go_on(self) -> None:
        self._is_held_back = False
        if self._rest:
            self.turns.add(self)
        else:
            self._read_on()

    def _read_on(self) -> None:
        if not (self.has_ended or self.is_clogged or self._is_held_back):
            self.transport.resume_reading()

    def _feed_later(self, data: bytes) -> None:
        """Queue a chunk behind everything that waits already, here and on other connections."""
        had_rest = bool(self._rest)
        self._keep(self._feed(data), len(data))
        if not had_rest:
            self._wait_for_turn()

    def _feed(self, data: bytes) -> Iterator[bytes | None]:
        yield from self.framer.feed(data)

    def _keep(self, frames: Iterator[bytes | None], size: int) -> None:
        """Store the frames of a chunk of `size` bytes that cannot be processed now."""
        self._rest.append(frames)
        self._rest_bytes += size
        self.hold(size)

    def _judge_framing(self) -> None:
        """Send the framer's own output, and end the connection on a violation."""
        framer = self.framer
        if framer.wants_flush:
            self._touched.append(self)
        if framer.violation is not None and not self.is_closed:
            self.session.on_violation(framer.violation)

    def _fail(self) -> None:
        """End after an exception: a bug of ours, which must affect this connection only."""
        self.session.on_fault()
        self.abort("our fault")

    # Called by the session

    @property
    def said(self) -> int:
        """The number of chunks that completed a frame; a changed count shows activity."""
        return self.reads - self._unsaid

    def send(self, frame: bytes) -> None:
        """Queue one frame; it is written with the next flush."""
        out = self.out
        if not out:
            if self.is_closed:
                return
            self._touched.append(self)
        out.append(frame)

    def put_off(self) -> None:
        """Set the queued frames aside: later frames are written at once, after these."""
        self._put_off += tuple(self.out)
        self.out.clear()

    def has_unsent(self) -> bool:
        """True while a frame has not been passed to the transport."""
        return bool(self.out or self._put_off)

    def flush(self) -> None:
        """Write out the queued frames; called once per chunk, not per frame."""
        if self.is_closed:
            return
        if self._put_off:
            self._write_out()
        else:
            buffers = self.framer.encode(self.out)
            if len(buffers) == 1:
                self.transport.write(buffers[0])
            elif buffers:
                self.transport.writelines(buffers)
        if self.is_slow:
            self._measure()
            if self.unread_bytes > self.limits.max_unread_bytes:
                self.abort("does not read")
                return
        if self.has_ended and not self._rest:
            self.session.on_flushed_after_end()

    def _write_out(self) -> None:
        if self._put_off:
            self.out[:0] = self._put_off
            self._put_off = ()
        buffers = self.framer.encode(self.out)
        if len(buffers) == 1:
            self.transport.write(buffers[0])
        elif buffers:
            self.transport.writelines(buffers)

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Send the last frames, then discard input until the peer disconnects.

        Closing at once with unread bytes would make the kernel reset the connection, and the
        peer would lose the error reply with the reason.
        """
        if self.is_closed:
            return
        self._write_out()
        self.transport.writelines(self.framer.encode_close(code, reason))
        self.framer = Discard()
        self.deadline = self.clock() + self.limits.linger_seconds
        self._on_closing(self)
        self._part(reason or "closed")
        if self.has_ended:
            self.transport.close()
            return
        self._read_on()  # discard input to the end of the stream
        try:
            self.transport.write_eof()
        except OSError:  # raised by asyncio's transport if the peer has closed already
            self.transport.abort()

    def abort(self, reason: str) -> None:
        """Drop the connection without notifying the peer."""
        self._part(reason)
        self.transport.abort()

    @property
    def has_pings(self) -> bool:
        """Whether the peer can be pinged: not over plain lines."""
        return self.framer.has_pings

    def ping(self) -> None:
        """Ping a quiet peer; abort after three rounds without any input."""
        is_quiet = self.reads == self._reads_at_ping
        self.quiet_rounds = self.quiet_rounds + 1 if is_quiet else 1
        self._reads_at_ping = self.reads
        buffers = self.framer.encode_ping()
        if buffers and self.quiet_rounds > 3:
            self.abort("no pong")
        elif buffers and self.quiet_rounds > 1:
            self.transport.writelines(buffers)
            if self.is_slow:
                self._measure()

    def _part(self, reason: str) -> None:
        """Notify the session, once, that the connection is closed."""
        if not self.is_closed:
            self.is_closed = True
            self.out.clear()
            self._put_off = ()
            self._rest.clear()
            self._waiting_bytes -= self._rest_bytes
            self._rest_bytes = 0
            self._steps = None
            self.session.on_lost(reason)


def _run(action: Callable[[], None]) -> Iterator[bytes | None]:
    """Run `action` as the only step of this iterator."""
    action()
    yield None
