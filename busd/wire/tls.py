"""TLS between a transport and a connection: to each it has the interface of the other.

    socket ⇄ transport ⇄ TlsTransport ⇄ Connection

OpenSSL works on two buffers in memory here, so bus and clients, asyncio and trio share this code,
and nothing waits. A short chunk from the transport is decrypted and passed up at once, a long one
piece by piece in turns of its own: it may contain 10,000 records of one byte each. A flush of the
connection becomes one write to the transport.
"""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from functools import partial

from busd.errors import ProtocolViolation
from busd.wire.connection import Connection
from busd.wire.interfaces import Discard, NoTransport, Transport
from busd.wire.tls_settings import PeerCertificate, explain, read_peer_certificate

# OpenSSL's buffers hold no more than this at once, because they never shrink.
_RECORD_BYTES = 16_384
_PIECE_BYTES = 2 * _RECORD_BYTES  # decrypted at once; at most 1,500 records: 4 ms
_HANDSHAKE_OR_ALERT = (22, 21)  # the first byte from the other side if it uses TLS


def peer_certificate(connection: Connection) -> PeerCertificate | None:
    """Return the certificate of the peer, if any; it is known before its first frame."""
    transport = connection.transport
    return transport.peer_certificate if isinstance(transport, TlsTransport) else None


class TlsTransport:
    """Encrypts what a connection writes and decrypts what its transport receives."""

    def __init__(
        self, connection: Connection, context: ssl.SSLContext, host: str | None = None
    ) -> None:
        """Act as the server or, if the host of the certificate is given, as the client."""
        self.connection = connection
        self.peer_certificate: PeerCertificate | None = None
        self._is_full_below = False  # the transport below accepts no more for now
        self._is_full = False  # the connection was notified
        self._is_client = host is not None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=host is None, server_hostname=host
        )
        self._is_shaking = True  # the handshake is in progress; output waits in the queue
        self._is_open = False  # output can be encrypted
        self._has_ended = False  # the peer will send no more
        self._is_over = False  # input is discarded
        self._is_paused = False  # the connection does not read
        self._hello_bytes = 0
        self._pieces: deque[bytes] = deque()  # not decrypted yet
        self._piece_bytes = 0  # as counted by the connection
        self._is_lost = False  # the transport below is closed
        self._loss: BaseException | None = None  # the reason
        self._queue: list[bytes] = []
        self._queue_bytes = 0
        self._high = 65_536
        self._end_later: Callable[[], None] | None = None

    # Called by the transport below

    def connection_made(self, transport: Transport) -> None:
        self._below = transport
        self.connection.connection_made(self)
        if self._is_over:  # the bus stopped meanwhile
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()  # a client's hello

    def data_received(self, data: bytes) -> None:
        """Decrypt a short chunk and pass it up; a long one, and a handshake, wait for a turn.

        A handshake takes half a millisecond or more, and any number of them may begin at once.
        """
        is_long = len(data) > _PIECE_BYTES or (self._is_shaking and not self._is_client)
        if not (is_long or self._pieces):
            self._receive(data)
            return
        self._below.pause_reading()
        self._pieces += [data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES)]
        self._count_pieces()
        self.connection.turns.add(self)

    @property
    def queue(self) -> Hashable:
        return self.connection.queue

    def take_turn(self) -> None:
        """Decrypt the next piece, unless the connection has enough to do."""
        if self._is_paused and not (self._is_shaking or self._is_over):
            return  # resume_reading() continues
        if self._pieces:
            self._receive(self._pieces.popleft())
            self._count_pieces()
        if self._is_lost and not self._pieces:
            self._finish()
        else:
            self._read_on()

    def _count_pieces(self) -> None:
        """Report to the connection how many bytes are not decrypted yet."""
        size = sum(map(len, self._pieces))
        grown, self._piece_bytes = size - self._piece_bytes, size
        self.connection.hold(grown)

    def _receive(self, data: bytes) -> None:
        """Decrypt all of `data`, then pass it up: one flush."""
        if self._is_over or self._has_ended:
            return
        plain: list[bytes] = []
        was_shaking = self._is_shaking
        violation: ProtocolViolation | None = None
        try:
            for at in range(0, len(data), _RECORD_BYTES):
                if not self._has_ended:
                    self._take(data[at : at + _RECORD_BYTES], plain)
        except ProtocolViolation as this:
            violation = this
        if was_shaking:
            self._flush_handshake()
        if plain:
            self.connection.data_received(plain[0] if len(plain) == 1 else b"".join(plain))
        if violation is not None:
            self._pieces.clear()
            self.connection.when_done(partial(self._fail, violation))
        elif self._has_ended:
            self._pass_up_end()
        elif not self._is_over:
            self._flush()  # OpenSSL may have output of its own

    def _take(self, data: bytes, plain: list[bytes]) -> None:
        """Add what `data` completes to `plain`; raise ProtocolViolation."""
        incoming, tls = self._incoming, self._tls
        incoming.write(data)
        try:
            if self._is_shaking:
                self._shake_hands(data)
            # An SSLWantReadError costs 1.7 µs, this check 0.15.
            while incoming.pending or tls.pending():
                part = tls.read(_RECORD_BYTES)
                if not part:
                    raise ssl.SSLZeroReturnError
                plain.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._has_ended = True
        except ssl.SSLError as problem:
            raise ProtocolViolation(
                explain(problem, is_client=self._is_client), rule="tls"
            ) from None

    def _shake_hands(self, data: bytes) -> None:
        """Continue the handshake; return only when it is complete."""
        if not self._hello_bytes and data[0] not in _HANDSHAKE_OR_ALERT:
            raise ProtocolViolation("plain text where TLS is spoken", rule="tls")
        self._hello_bytes += len(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            max_bytes = self.connection.limits.max_hello_bytes
            if self._hello_bytes > max_bytes:
                raise ProtocolViolation(
                    f"TLS handshake over {max_bytes} bytes", rule="max_hello_bytes"
                ) from None
            raise
        self._is_shaking = False
        self._is_open = True
        self.peer_certificate = read_peer_certificate(self._tls)

    def eof_received(self) -> bool:
        """Handle the end of the stream, with or without a TLS close; True keeps our half open."""
        if self._is_shaking and not self._is_over:
            self.connection.abort("the peer left during the TLS handshake")
        if self._is_over:
            return False
        if self._has_ended:
            return not self.connection.is_closed
        self._has_ended = True
        return self.connection.eof_received()

    def pause_writing(self) -> None:
        self._is_full_below = True
        self._pass_up_pressure()

    def resume_writing(self) -> None:
        self._is_full_below = False
        self._pass_up_pressure()

    def _pass_up_pressure(self) -> None:
        """Pause or resume writing of the connection, if that has changed."""
        is_full = self._is_full_below or self._queue_bytes > self._high
        if is_full != self._is_full:
            self._is_full = is_full
            connection = self.connection
            (connection.pause_writing if is_full else connection.resume_writing)()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End, after everything received before is decrypted."""
        self._below = NoTransport()
        self._is_lost, self._loss = True, exc
        self._is_full_below = False
        self._pass_up_pressure()
        if self._pieces and not (self._is_over or self._has_ended):
            self.connection.turns.add(self)
        else:
            self._pieces.clear()
            self._finish()

    def _finish(self) -> None:
        self._is_lost = False  # discard: a turn that is still due must find nothing to do
        self._count_pieces()
        self._is_over = True
        self._is_open = False
        self.connection.connection_lost(self._loss)
        # Up to 40 KiB that do not count for the garbage collector, which must break the cycle.
        del self._tls, self._incoming, self._outgoing

    # Called by the connection

    def write(self, data: bytes) -> None:
        """Encrypt and send; queue while the handshake is in progress."""
        if self._is_open:
            self._encrypt(data)
        elif data and self._is_shaking and not self._is_over:
            self._queue.append(data)
            self._queue_bytes += len(data)
            self._pass_up_pressure()

    def writelines(self, list_of_data: Iterable[bytes]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        self._end(self._below.write_eof)

    def close(self) -> None:
        self._end(self._below.close)

    def abort(self) -> None:
        self._is_over = True
        self._is_open = False
        self._below.abort()
        if self._is_lost:
            self.connection.turns.add(self)  # to call _finish(); nothing else does

    def pause_reading(self) -> None:
        self._is_paused = True
        if not self._is_shaking:  # else output that waits for the handshake would wait forever
            self._below.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._read_on()

    def get_write_buffer_size(self) -> int:
        return self._queue_bytes + self._below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = self._high if high is None else high
        self._below.set_write_buffer_limits(high, low)

    # Between the two

    def _read_on(self) -> None:
        """Continue with the next piece, or read on."""
        if self._is_paused:
            return
        if self._pieces:
            self.connection.turns.add(self)
        elif not self._has_ended:
            self._below.resume_reading()

    def _encrypt(self, data: bytes) -> None:
        records: list[bytes] = []
        try:
            for at in range(0, len(data), _RECORD_BYTES):
                self._tls.write(data[at : at + _RECORD_BYTES])
                records.append(self._outgoing.read())
        except ssl.SSLError:
            self.abort()  # never seen; but it must not raise in the caller, who pings or flushes
        if records and not self._is_over:
            self._below.write(records[0] if len(records) == 1 else b"".join(records))

    def _flush(self) -> None:
        """Send OpenSSL's own output, unless our half is closed."""
        if self._outgoing.pending and (self._is_open or self._is_shaking):
            self._below.write(self._outgoing.read())

    def _flush_handshake(self) -> None:
        """Send our part of the handshake and, when it is done, what waited for it."""
        if self._is_shaking:
            self._flush()
            return
        queue, self._queue, self._queue_bytes = b"".join(self._queue), [], 0
        self._encrypt(queue)
        self._pass_up_pressure()
        if self._is_paused:
            self._below.pause_reading()
        if self._end_later is not None:
            self._end(self._end_later)

    def _end(self, end_below: Callable[[], None]) -> None:
        """End our half: send the queue, then a TLS close, so that truncation is detected."""
        if self._queue and not self._is_over:
            self._end_later = end_below
            return
        if self._is_open:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # the peer has not closed yet; data_received will handle that
            self._flush()
            self._is_open = False
        self._is_over = self._is_over or self._is_shaking
        try:
            end_below()
        except OSError:  # raised by asyncio's transport if the peer has closed already
            self.abort()

    def _pass_up_end(self) -> None:
        """Pass the end of the stream on to the connection."""
        if self._is_over:
            return
        self._below.pause_reading()
        if not self.connection.eof_received():
            self.close()

    def _fail(self, violation: ProtocolViolation) -> None:
        """End the connection as after any other violation; the peer gets OpenSSL's alert."""
        if self._is_over:
            return
        self._flush()
        self._is_over = True
        self._is_open = False
        was_closed = self.connection.is_closed
        self.connection.framer = Discard()
        if not was_closed:
            self.connection.session.on_violation(violation)
        if was_closed or self._is_client:
            self._below.close()  # a bus lingers, so that the alert is read: its sweeper ends it
