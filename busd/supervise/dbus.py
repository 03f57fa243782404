"""A D-Bus connection to a Unix socket, without a bus in between: calls, replies and signals.

jeepney encodes and decodes; only this module waits for the socket.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import anyio
from jeepney import DBusAddress, HeaderFields, Message, MessageType, Parser, new_method_call
from jeepney.auth import BEGIN, AuthenticationError, Authenticator

Body: TypeAlias = tuple[Any, ...]  # Any: its types are in the signature
OnSignal = Callable[[str, str, Body], None]  # its object's path, its name, its body
OnReply = Callable[[Body], None]

_AUTHENTICATE_SECONDS = 5.0
_SEND_SECONDS = 10.0
_CHUNK_BYTES = 16_384  # about 2 ms of decoding: with a flood of signals other tasks run in between
_MAX_MESSAGE_BYTES = 4 * 1024 * 1024
# What jeepney raises for bytes that are no message, and a signal of another shape than expected.
_MALFORMED = (ValueError, LookupError, TypeError, struct.error, RecursionError)


class DBusError(Exception):
    """The other side answered with an error; the text is its own."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text or name)
        self.name = name


class BrokenLink(Exception):
    """The connection ended before an answer came."""


class DBusConnection:
    """A connection that has been authenticated; replies arrive while `serve` runs."""

    def __init__(self, stream: _Stream, on_signal: OnSignal) -> None:
        self._stream = stream
        self._on_signal = on_signal
        self._parser = Parser()
        self._serials = count(1)
        self._pending: dict[int, _Reply] = {}  # as many as there are callers
        self.is_closed = False

    async def call(
        self,
        address: DBusAddress,
        member: str,
        signature: str | None = None,
        body: Body = (),
        on_reply: OnReply | None = None,  # called before the message after the reply is read
    ) -> Body:
        """Call a method and return the body of its reply; raise DBusError or BrokenLink."""
        serial = next(self._serials)
        data = _encode(new_method_call(address, member, signature, body), serial)
        reply = self._pending[serial] = _Reply(on_reply)
        try:
            if self.is_closed:
                raise BrokenLink("the connection is closed")
            await self._stream.send(data)
            await reply.is_there.wait()
        finally:
            self._pending.pop(serial, None)
        if reply.problem is not None:
            raise reply.problem
        return reply.body

    async def serve(self) -> str:
        """Read replies and signals until the connection ends; return why it did."""
        why = "the connection was closed"
        try:
            while True:
                self._parser.add_data(await self._stream.receive())
                while (message := self._parser.get_next_message()) is not None:
                    self._receive(message)
                if self._parser.bytes_desired() > _MAX_MESSAGE_BYTES:
                    why = f"a message has more than {_MAX_MESSAGE_BYTES} bytes"
                    break
        except BrokenLink as problem:
            why = str(problem)
        except _MALFORMED as problem:
            why = f"a message cannot be decoded: {problem!r}"
        finally:
            self.is_closed = True
            for reply in self._pending.values():
                reply.fail(BrokenLink(why))
        return why

    def close(self) -> None:
        """Close the connection, which ends `serve`."""
        self._stream.shut_down()

    def _receive(self, message: Message) -> None:
        fields = message.header.fields
        kind = message.header.message_type
        if kind is MessageType.signal:
            path, member = fields.get(HeaderFields.path, ""), fields.get(HeaderFields.member, "")
            return self._on_signal(path, member, message.body)
        reply = self._pending.get(fields.get(HeaderFields.reply_serial, 0))
        if reply is None:
            return None  # nobody waits for it any more, or it is a call: we serve none
        if kind is MessageType.error:
            text = str(message.body[0]) if message.body else ""
            return reply.fail(DBusError(fields.get(HeaderFields.error_name, ""), text))
        return reply.put(message.body)


class _Reply:
    def __init__(self, on_reply: OnReply | None) -> None:
        self.is_there = anyio.Event()
        self.body: Body = ()
        self.problem: Exception | None = None
        self._on_reply = on_reply

    def put(self, body: Body) -> None:
        self.body = body
        if self._on_reply is not None:
            self._on_reply(body)
        self.is_there.set()

    def fail(self, problem: Exception) -> None:
        if not self.is_there.is_set():
            self.problem = problem
            self.is_there.set()


@asynccontextmanager
async def open_dbus(path: Path, on_signal: OnSignal) -> AsyncIterator[DBusConnection]:
    """Connect and authenticate; raise OSError or BrokenLink."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setblocking(False)
        sock.connect(str(path))  # at once, or not at all
        stream = _Stream(sock)
        try:
            with anyio.fail_after(_AUTHENTICATE_SECONDS):
                await _authenticate(stream)
        except TimeoutError:
            raise BrokenLink(f"no authentication in {_AUTHENTICATE_SECONDS:g} s") from None
        except AuthenticationError as problem:
            raise BrokenLink(str(problem)) from None
        try:
            yield DBusConnection(stream, on_signal)
        finally:
            await stream.finish()


async def _authenticate(stream: _Stream) -> None:
    authenticator = Authenticator()
    # In one write, as sd-bus does it: a server of systemd's that reads BEGIN together with the
    # first message does not answer that message before another one comes.
    await stream.send(authenticator.data_to_send() + BEGIN)
    while not authenticator.authenticated:
        authenticator.feed(await stream.receive())


def _encode(message: Message, serial: int) -> bytes:
    try:
        encoded: bytes = message.serialise(serial)
    except (ValueError, TypeError, struct.error) as problem:
        raise DBusError("", f"it cannot be sent: {problem}") from None
    return encoded


class _Stream:
    """A socket; anyio's own stream fails on uvloop if a read is cancelled as data arrives."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._is_sending = anyio.Lock()

    async def receive(self) -> bytes:
        """Return what has arrived; raise BrokenLink."""
        while True:
            await anyio.wait_readable(self._sock)
            try:
                data = self._sock.recv(_CHUNK_BYTES)
            except BlockingIOError:
                continue
            except OSError as problem:
                raise BrokenLink(f"the connection broke: {problem.strerror}") from None
            if not data:
                raise BrokenLink("the connection was closed")
            return data

    async def send(self, data: bytes) -> None:
        """Send all of it; raise BrokenLink."""
        async with self._is_sending:
            # Half a message would spoil all that follow.
            with anyio.move_on_after(_SEND_SECONDS, shield=True):
                return await self._send(memoryview(data))
            self.shut_down()
            raise BrokenLink(f"nothing could be sent in {_SEND_SECONDS:g} s")

    async def _send(self, left: memoryview) -> None:
        while left:
            try:
                left = left[self._sock.send(left) :]
            except BlockingIOError:
                await anyio.wait_writable(self._sock)
            except OSError as problem:
                raise BrokenLink(f"the connection broke: {problem.strerror}") from None

    def shut_down(self) -> None:
        """End what waits for the socket, on both sides."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    async def finish(self) -> None:
        """Wait until nobody uses the socket any more; a sender fails at once."""
        self.shut_down()
        with anyio.CancelScope(shield=True):
            async with self._is_sending:
                pass
