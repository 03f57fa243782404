"""The two ends of a TLS connection: a session of ours above it, and Python's own TLS as the peer.

The peer is an `ssl.SSLObject` driven by hand. It shares no code with ours, and it can do what no
well-behaved client would: leave without a goodbye, change a byte, read nothing.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import anyio

from busd.errors import ProtocolViolation
from busd.testing.transport import MemoryTransport, Soon
from busd.wire.connection import Connection, WireLimits
from busd.wire.lines import LineFramer
from busd.wire.tls import TlsTransport, peer_certificate
from busd.wire.tls_settings import PeerCertificate
from busd.wire.turns import Turns

PATIENCE_SECONDS = 30.0
MIB = 1024 * 1024
LIMITS = WireLimits(max_frame_bytes=4 * MIB)


class Talk:
    """A session that keeps what it hears and, if it `echoes`, says it again."""

    def __init__(self, connection: Connection, *, echoes: bool = False) -> None:
        self.connection = connection
        self.frames: list[bytes] = []
        self.has_ended = False
        self.reason = ""  # why the connection is no more
        self.echoes = echoes
        self.aborts = False  # at the first frame
        self.keeps_open = False  # after the end of the peer: answers are still owed
        self.is_gone = False  # and the socket is closed
        self._changed = anyio.Event()

    @property
    def certificate(self) -> PeerCertificate | None:
        return peer_certificate(self.connection)

    def say(self, *frames: bytes) -> None:
        for frame in frames:
            self.connection.send(frame)
        self.connection.flush()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something that happened to this session has made it so."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while not is_so():
                await self._changed.wait()

    async def until_lost(self) -> str:
        """Wait until the connection is no more; give the reason."""
        await self.until(lambda: bool(self.reason))
        return self.reason

    async def hear(self, count: int) -> list[bytes]:
        """Wait for that many frames."""
        await self.until(lambda: len(self.frames) >= count)
        return self.frames

    def note(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    # Called by the connection

    def receive(self, frame: bytes) -> None:
        self.frames.append(frame)
        self.connection.framer.allow(LIMITS.max_frame_bytes)
        if self.echoes:
            self.connection.send(frame)
        if self.aborts:
            self.connection.abort("heard enough")
        self.note()

    def on_violation(self, violation: ProtocolViolation) -> None:
        self.connection.close(violation.close_code, violation.reason)

    def on_end(self) -> None:
        self.has_ended = True
        if not self.keeps_open:
            self.connection.close()
        self.note()

    def on_flushed_after_end(self) -> None:
        if self.keeps_open:
            self.connection.close()

    def on_lost(self, reason: str) -> None:
        self.reason = reason
        self.note()

    def on_gone(self, connection: Connection) -> None:
        self.is_gone = True
        self.note()

    def on_fault(self) -> None:
        raise AssertionError("a fault of ours")


class QuietTalk(Talk):
    """A session outside any loop: nobody waits for it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.frames = []
        self.has_ended = False
        self.reason = ""
        self.echoes = False
        self.aborts = False
        self.keeps_open = False
        self.is_gone = False

    def note(self) -> None: ...


class StdlibPeer:
    """The other side, by Python's own TLS: gives and takes ciphertext."""

    def __init__(self, context: ssl.SSLContext, host: str | None = "localhost") -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self.incoming, self.outgoing, server_side=host is None, server_hostname=host
        )
        self.plain = b""  # what was said to us
        self.is_open = False
        self.has_goodbye = False  # the other side has ended as one should
        self.problem: ssl.SSLError | None = None

    def take(self, ciphertext: bytes) -> None:
        """Read what came; goes on with the handshake if need be."""
        self.incoming.write(ciphertext)
        try:
            if not self.is_open:
                self.tls.do_handshake()
                self.is_open = True
            while part := self.tls.read(MIB):
                self.plain += part
            self.has_goodbye = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.has_goodbye = True
        except ssl.SSLError as problem:
            self.problem = problem

    def give(self) -> bytes:
        """Return the ciphertext to send."""
        return self.outgoing.read()

    def encrypt(self, plain: bytes) -> bytes:
        """Return the ciphertext of what we say now."""
        self.tls.write(plain)
        return self.give()

    def goodbye(self) -> bytes:
        """Return the ciphertext of our goodbye."""
        with suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self.give()


class MemoryPair:
    """A connection of ours over TLS, in memory, and the peer at the other end."""

    def __init__(
        self,
        ours: ssl.SSLContext,
        theirs: ssl.SSLContext,
        *,
        host: str | None = None,
        limits: WireLimits = LIMITS,
        chunk_bytes: int = 65_536,
        connection: Connection | None = None,
    ) -> None:
        """We are the bus, unless there is the name of a host to be a client of."""
        soon = Soon()
        self.connection = connection or Connection(
            LineFramer(4 * MIB),
            [],
            Turns(soon.run),
            limits,
            on_gone=lambda gone: self.talk.on_gone(gone),
        )
        if connection is None:
            self.talk = QuietTalk(self.connection)
            self.connection.session = self.talk
        self.tls = TlsTransport(self.connection, ours, host)
        self.peer = StdlibPeer(theirs, "localhost" if host is None else None)
        self.has_end = False  # nothing more comes from our side
        self.writes: list[bytes] = []  # what our side wrote below, as it was cut
        self._chunk_bytes = chunk_bytes
        self.below = MemoryTransport(as_connection(self.tls), self, soon)

    def shake_hands(self) -> None:
        """Let both sides finish the handshake."""
        self.peer.take(b"")
        self.send(self.peer.give())
        self.exchange()
        assert self.peer.is_open, self.talk.reason

    def exchange(self) -> None:
        """Carry ciphertext until neither side has any left."""
        while ciphertext := self.peer.give():
            self.send(ciphertext)

    def send(self, ciphertext: bytes) -> None:
        """Carry ciphertext to our side, cut into chunks."""
        for at in range(0, len(ciphertext), self._chunk_bytes):
            self.below.feed(ciphertext[at : at + self._chunk_bytes])

    # What our side writes comes here

    def on_bytes(self, data: bytes) -> None:
        self.writes.append(data)
        for at in range(0, len(data), self._chunk_bytes):
            self.peer.take(data[at : at + self._chunk_bytes])

    def on_end(self) -> None:
        self.has_end = True


def as_connection(tls: TlsTransport) -> Connection:
    """Return what transports must believe: that it is a connection that they serve."""
    return cast(Connection, tls)
