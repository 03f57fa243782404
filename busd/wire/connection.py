"""A connection: a pipe of frames between a transport below and a session above.

The seam to the transport is asyncio's own pair: a transport calls `data_received`, `eof_received`,
`pause_writing`, `resume_writing` and `connection_lost`; the connection calls `write`, `write_eof`,
`abort`, `pause_reading`, `resume_reading`. On asyncio and uvloop their transports fit as they are,
on trio `SocketTransport` does (`trio_transport.py`), in tests an in-memory one.

Nothing here waits. Frames to send are put on a list, the connection on the list of touched ones,
and whoever fed the chunk flushes each touched connection once.

A chunk that takes longer than a slice is worked off in several turns (`turns.py`). What is left
waits as a queue of iterators of frames; whatever arrives or ends meanwhile goes to its end. A frame
that takes several steps (a batch) has them worked off before the next frame. While something is
left, the transport is not read.
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
from busd.wire.interfaces import NO_METER, Discard, Framer, Meter, NoTransport, Session, Transport
from busd.wire.turns import LOOK_BYTES, QUICK_BYTES, Turns

_MIB = 1024 * 1024
_SLOW_BYTES = 16_384  # more than this unread: what waits for the peer is measured and counted
MIN_FRAME_BYTES = 1_024  # what the answer to `initialize` and every error fit into
FrameBytes = Annotated[int, msgspec.Meta(ge=MIN_FRAME_BYTES, le=2**30, extra={WORDS: "1 GiB"})]
NOBODY = Credentials()
# A chunk as large as this ends a turn: uvloop would read up to 32 in a row.
_MANY_BYTES = 2 * 65_536
_SHORT_BYTES = 8_192  # of a chunk
_NEWCOMERS = "newcomers"
_END = b"end"  # told from a frame by its identity


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

    session: Session

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
        # On the sweeper's clock; past it the connection is aborted. It has initialized if inf.
        self.deadline = inf
        self.reads = 0  # chunks; whoever looks twice sees whether the peer is alive
        self._unsaid = 0  # of them without a frame: parts of one, a WebSocket's pings and pongs
        self.quiet_rounds = 0
        self._reads_at_ping = 0
        self.meter: Meter = NO_METER
        self.is_slow = False
        self.held_bytes = 0  # received, as counted by the meter; 0 if that is little
        self.unread_bytes = 0  # as counted by the meter; 0 unless the peer is slow
        self.is_clogged = False
        self.is_closed = False
        self.has_ended = False
        # Frames that leave with the next flush; the same list all the time. While it is not empty,
        # a session may append to it instead of calling `send` (0.04 µs per frame).
        self.out: list[bytes] = []
        self._touched = touched
        self._on_gone = on_gone
        self.turns = turns
        self._rest: list[Iterator[bytes | None]] = []  # to be worked off
        self._rest_bytes = 0  # of the chunks that these come from
        self._waiting_bytes = 0  # the same, and what TLS has not decrypted yet
        # Of the frame received last; they come first.
        self._steps: Iterator[bytes | None] | None = None
        self._must_look = False  # at the clock, after this frame
        self._is_held_back = False  # until all that it sent to many is written out
        self._put_off: tuple[bytes, ...] = ()  # to be written out in turns
        self._turn_ends = 0.0
        self._turn_read = 0  # the chunk at which the turn started: the first look starts it
        self._on_closing = on_closing

    # Called by the transport

    def connection_made(self, transport: Transport) -> None:
        self.transport = transport
        if self.is_closed:  # before it was made: the bus stopped meanwhile
            transport.abort()
            return
        self.set_mark()

    def set_mark(self) -> None:
        """Have the transport say when more waits than a peer that reads leaves unread."""
        high = min(_SLOW_BYTES, self.limits.max_queue_bytes)
        self.transport.set_write_buffer_limits(high=high)

    def data_received(self, data: bytes) -> None:
        """Pass each frame of this chunk up, as far as a slice goes, then flush what it touched."""
        self.reads += 1
        size = len(data)
        try:
            if self._rest:
                self._feed_later(data)
                return
            if size > QUICK_BYTES or self.deadline != inf:
                turns = self.turns
                turns.unseen_bytes += size
                # Late: this round of the loop has taken its time already.
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
        """Count bytes that were received and wait to be worked off, here or below."""
        self._waiting_bytes += size
        self._count_held()

    def _count_held(self) -> None:
        """Count what was received and is not done with; end the connection if it is too much."""
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
        """Measure from now on what a peer does not read."""
        self.is_slow = True
        self._measure()

    def _measure(self) -> None:
        """Count what waits; stop reading from a peer for which too much waits.

        It may not add to what it does not read, and neither may others of its identity if that
        has used up its quota.
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
        """End the session; a peer that is gone has still said what it said before."""
        self.transport = NoTransport()
        self.is_clogged = False
        self.has_ended = True
        if self._rest:
            self.turns.add(self)
        self.when_done(partial(self._part, "lost" if exc is None else str(exc)))
        self._on_gone(self)

    # Turns

    def charge(self) -> None:
        """Have the clock looked at after this frame: it is not one of the cheap ones."""
        self._must_look = True

    def work_off(self, steps: Iterator[bytes | None]) -> None:
        """Have the steps that a frame takes worked off, in turns, before the next frame.

        A step is what happens until the next `yield`, which gives None. To be called
        while that frame is received.
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
        """Go on with what is left for another slice."""
        if not self._is_held:  # else resume_writing() goes on
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
        """Pass on what is left until nothing is or the turn is over."""
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
                    break  # closed, or there are steps that come first
                if self._is_turn_over():
                    self._wait_for_turn()
                    return
            else:
                self._finish(frames)
        self._read_on()

    def _finish(self, frames: Iterator[bytes | None]) -> None:
        """Go on behind what has been worked off."""
        if frames is self._steps:
            self._steps = None
        elif self._rest:  # else the connection was closed
            del self._rest[0]
            self._judge_framing()
            if not self._rest:
                size, self._rest_bytes = self._rest_bytes, 0
                self.hold(-size)

    def _is_turn_over(self) -> bool:
        """Look at the clock; the first look of a turn starts it, unless others wait already."""
        self._must_look = False
        if self._is_held or len(self._touched) > AT_ONCE:
            return True
        if self._turn_read != self.reads:
            self._start_turn()
            return self.turns.is_busy or self.turns.is_round_over()
        return monotonic() >= self._turn_ends

    def _wait_for_turn(self) -> None:
        """Let the others go first; nothing more is read until what is left is done."""
        if self.framer.wants_flush:
            self._touched.append(self)
        self.transport.pause_reading()
        if not self._is_held:
            self.turns.add(self)

    @property
    def _is_held(self) -> bool:
        """True while the next frame has to wait: too much waits to be written out.

        If that is because the peer does not read, a frame that was begun is finished: a batch has
        one answer, and its size is bounded.
        """
        return self._is_held_back or (self.is_clogged and self._steps is None)

    @property
    def queue(self) -> Hashable:
        """Which queue this waits in for its turn: see `turns.py`."""
        if self.deadline != inf:
            return _NEWCOMERS
        return self.meter, self._rest_bytes > _SHORT_BYTES

    def hold_back(self) -> None:
        """Take nothing more of the peer until `go_on`."""
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
        """Have a chunk worked off after what waits already, here and elsewhere."""
        had_rest = bool(self._rest)
        self._keep(self._feed(data), len(data))
        if not had_rest:
            self._wait_for_turn()

    def _feed(self, data: bytes) -> Iterator[bytes | None]:
        yield from self.framer.feed(data)

    def _keep(self, frames: Iterator[bytes | None], size: int) -> None:
        """Keep the frames of a chunk of `size` bytes that cannot be worked off now."""
        self._rest.append(frames)
        self._rest_bytes += size
        self.hold(size)

    def _judge_framing(self) -> None:
        """Look what the framer has to say after a chunk."""
        framer = self.framer
        if framer.wants_flush:
            self._touched.append(self)
        if framer.violation is not None and not self.is_closed:
            self.session.on_violation(framer.violation)

    def _fail(self) -> None:
        """End after an exception: it is ours, not the peer's, and only this connection pays."""
        self.session.on_fault()
        self.abort("our fault")

    # Called by the session

    @property
    def said(self) -> int:
        """Chunks with a frame; whoever looks twice sees whether the peer said anything."""
        return self.reads - self._unsaid

    def send(self, frame: bytes) -> None:
        """Put one frame on the way; it leaves with the next flush."""
        out = self.out
        if not out:
            if self.is_closed:
                return
            self._touched.append(self)
        out.append(frame)

    def put_off(self) -> None:
        """Keep apart what waits: whatever is sent from now on is written out at once, behind it."""
        self._put_off += tuple(self.out)
        self.out.clear()

    def has_unsent(self) -> bool:
        """True while a frame has not even been given to the transport."""
        return bool(self.out or self._put_off)

    def flush(self) -> None:
        """Write out what waits; called once per chunk, not per frame."""
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
        """Send the last frames, then discard what still comes until the peer is gone.

        Closing at once with unread bytes would make the kernel reset the connection, and the
        peer would lose the error reply that tells it why.
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
        self._read_on()  # to the end of the stream
        try:
            self.transport.write_eof()
        except OSError:  # asyncio's own transport: the peer was faster
            self.transport.abort()

    def abort(self, reason: str) -> None:
        """Drop the connection without a word to the peer."""
        self._part(reason)
        self.transport.abort()

    @property
    def has_pings(self) -> bool:
        """Whether the peer can be pinged: not if it speaks lines."""
        return self.framer.has_pings

    def ping(self) -> None:
        """Find out whether a quiet peer is still there; three rounds of silence end it."""
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
        """Notify the session, once, that nothing more goes in or out."""
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
    """Run `action` as the only step of what is left."""
    action()
    yield None
