"""`Client`: be a peer of the bus, on asyncio or trio."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import count
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Raw
from ulid import ULID

from busd.bus.address import check_address, check_pattern
from busd.bus.message import Message, Receipt
from busd.client.connect import LIMITS, open_line, pauses, read_frame_limit
from busd.client.handlers import ANY_TYPE, Found, H, Handlers
from busd.client.incoming import Incoming, Messages, encode_payload
from busd.client.line import Line
from busd.client.workers import Workers
from busd.errors import BusdError, BusUnreachable, Busy, CallRefused, ConnectionLost, NoAnswer
from busd.rpc.envelope import RequestId
from busd.wire.connection import Connection, flush_touched
from busd.wire.driver import scheduler
from busd.wire.places import find_bus, find_token

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("busd.client")

_HANDSHAKE_SECONDS = 10.0
_SWEEP_SECONDS = 0.25
_decode_receipt = msgspec.json.Decoder(Receipt).decode


class Client:
    """A named peer of the bus.

        async with Client("agent:bob") as bus:
            async for message in bus.messages():
                await message.reply({"type": "tg_reply", "content": {"text": "hi"}})

    When the line breaks it is opened again by itself, with its name and its subscriptions; what
    was waiting for an answer raises ConnectionLost, which says whether it may have been delivered.
    """

    def __init__(
        self,
        client_id: str,
        *,
        address: str | None = None,
        info: dict[str, Any] | None = None,
        token: str = "",  # for TCP and WebSocket; found by itself where the bus is our own
        tls: ssl.SSLContext | None = None,  # for tls:// and wss://, if the system's will not do
        timeout_seconds: float = 75.0,  # longer than a bus waits for acks
        concurrency: int = 64,
    ) -> None:
        check_address(client_id)
        self.client_id = client_id
        self.address = find_bus(address)
        self._info = info or {}
        self._token = token
        self._tls = tls
        self._timeout_seconds = timeout_seconds
        self._concurrency = concurrency
        self.handlers = Handlers()
        self._patterns: dict[str, None] = {}
        self._inbox: deque[Incoming] = deque()
        self._touched: list[Connection] = []
        self._line: Line | None = None
        self._is_flush_due = False
        self._is_iterated = False  # somebody reads messages()
        self._is_closed = True
        # Ids that differ from everybody's, for 0.2 µs each: a ULID for each message takes 3.
        self._id_prefix = f"msg_{ULID()}-"
        self._id_numbers = count(1)

    # Life

    async def __aenter__(self) -> Client:
        self._schedule = scheduler()
        self._inbox_filled = anyio.Event()
        self._line_changed = anyio.Event()
        self._failure: BusdError | None = None
        self._is_closed = False
        self._tasks: TaskGroup = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._workers = Workers(self._tasks, self._handle, self._concurrency)
        try:
            await self._open()
        except BaseException:
            # Raised as it is, not in the group of one that the task group would make of it.
            self._tasks.cancel_scope.cancel()
            await self._tasks.__aexit__(None, None, None)
            raise
        self._tasks.start_soon(self._stay_connected)
        self._tasks.start_soon(self._sweep)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        line, self._line = self._line, None
        self._is_closed = True
        self._announce_line()  # whoever waits for it waits in vain
        if line is not None and line.is_open:
            await self._hang_up(line)
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def _hang_up(self, line: Line) -> None:
        """Close the line when the bus has read all we sent."""
        try:
            with anyio.move_on_after(LIMITS.linger_seconds, shield=True):
                if line.calls or line.has_abandoned:
                    # It would keep the line open for answers that nobody waits for any more.
                    await self._call_on(line, "ping", {}, inf)
                else:
                    line.close()
                    await line.gone.wait()
        except BusdError:
            pass  # it was quicker
        line.close()
        line.connection.abort("closed")

    async def run_forever(self) -> None:
        """Let the handlers work until we are cancelled; raises if the bus refuses us for good."""
        while self._failure is None and not self._is_closed:
            await self._line_changed.wait()
        if self._failure is not None:
            raise self._failure

    async def _open(self) -> None:
        """Open a line, say who we are and subscribe to what we were subscribed to."""
        line = None
        with anyio.move_on_after(min(_HANDSHAKE_SECONDS, self._timeout_seconds)):
            line = await open_line(self.address, self._tasks, self._touched, self._take, self._tls)
            await self._introduce(line)
            self._line = line
            self._announce_line()
            return
        if line is None:
            raise BusUnreachable(f"no bus at {self.address}: no connection in time")
        raise NoAnswer(f"whoever listens at {self.address} did not answer in time")

    async def _introduce(self, line: Line) -> None:
        who: dict[str, Any] = {"clientId": self.client_id, "clientInfo": self._info}
        if token := self._token or find_token(self.address):
            who["auth"] = {"token": token}
        try:
            welcome = await self._call_on(line, "initialize", who, inf)
            line.max_frame_bytes = read_frame_limit(welcome)
            for pattern in list(self._patterns):
                await self._call_on(line, "subscribe", {"address": pattern}, inf)
        except ConnectionLost:
            raise BusUnreachable(f"no bus at {self.address}: {line.reason}") from None
        except BaseException:
            line.connection.abort("refused")
            raise

    async def _stay_connected(self) -> None:
        """Open the line again whenever it is lost, until we close it or the bus says no."""
        while self._line is not None:
            await self._line.lost.wait()
            if self._line is None:
                return  # we closed it ourselves
            log.warning("line to %s lost: %s", self.address, self._line.reason)
            self._line = None
            for pause in pauses():
                await anyio.sleep(pause)
                try:
                    await self._open()
                    log.info("line to %s opened again", self.address)
                    break
                except (BusUnreachable, NoAnswer):
                    continue
                except CallRefused as refusal:
                    if refusal.code == Busy.code:
                        continue
                    self._failure = refusal
                    self._announce_line()
                    return

    def _announce_line(self) -> None:
        self._line_changed.set()
        self._line_changed = anyio.Event()
        self._inbox_filled.set()

    async def _sweep(self) -> None:
        """Fail the calls that the bus has not answered in time."""
        while True:
            await anyio.sleep(_SWEEP_SECONDS)
            now = time.monotonic()
            calls = self._line.calls if self._line is not None else {}
            for call in [each for each in calls.values() if each.deadline <= now]:
                call.fail(NoAnswer(f"the bus did not answer in time: {call.what}"))

    # Sending

    async def send(
        self,
        to: str,
        payload: Any,
        *,
        sender: str | None = None,
        message_id: str | None = None,
        timeout_seconds: float | None = None,
    ) -> Receipt:
        """Send a message and wait for the acks of everyone who got it."""
        message = Message(to=to, payload=encode_payload(payload))
        message.sender = sender or self.client_id
        message.message_id = message_id or self._new_message_id()
        raw = await self._call("sendMessage", message, timeout_seconds, f"message to {to}")
        return _decode_receipt(raw)

    async def post(
        self, to: str, payload: Any, *, sender: str | None = None, message_id: str | None = None
    ) -> Receipt:
        """Send a message and wait only until the bus has taken it; the receipt has no acks.

        The bus answers a connection's requests in order, so what it has to say against the
        message (or that nobody gets it) arrives before the answer to the ping behind it.
        """
        message = Message(to=to, payload=encode_payload(payload))
        message.sender = sender or self.client_id
        message.message_id = message_id = message_id or self._new_message_id()
        deadline = time.monotonic() + self._timeout_seconds
        line = await self._wait_for_line(deadline)
        call_id, sent = line.call("sendMessage", message, f"message to {to}", deadline)
        try:
            await self._call_on(line, "ping", {}, deadline, f"message to {to}")
        finally:
            if line.calls.pop(call_id, None):
                line.has_abandoned = True  # acks that come later are nobody's business
        if sent.is_done:
            return _decode_receipt(await sent.wait())
        return Receipt(True, message_id, [])

    async def call(
        self, method: str, params: Any = None, *, timeout_seconds: float | None = None
    ) -> Any:
        """Call any method of the bus and give its result; raises CallRefused if it says no."""
        params = {} if params is None else params
        return msgspec.json.decode(await self._call(method, params, timeout_seconds, method))

    async def ping(self) -> str:
        """Give the time of the bus."""
        return str((await self.call("ping"))["timestamp"])

    async def status(self) -> Any:
        """Say who is connected."""
        return await self.call("getStatus")

    async def subscribe(self, pattern: str) -> None:
        """Get the messages to every address that `pattern` matches, also after a reconnect."""
        check_pattern(pattern)
        await self.call("subscribe", {"address": pattern})
        self._patterns[pattern] = None

    async def unsubscribe(self, pattern: str) -> None:
        """Undo a subscribe of exactly the same pattern."""
        await self.call("unsubscribe", {"address": pattern})
        self._patterns.pop(pattern, None)

    def _new_message_id(self) -> str:
        return f"{self._id_prefix}{next(self._id_numbers)}"

    async def _call(
        self, method: str, params: Any, timeout_seconds: float | None, what: str
    ) -> Raw:
        seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        deadline = time.monotonic() + seconds
        line = self._line
        if line is None or not line.is_open:
            line = await self._wait_for_line(deadline)
        return await self._call_on(line, method, params, deadline, what)

    async def _call_on(
        self, line: Line, method: str, params: Any, deadline: float, what: str = ""
    ) -> Raw:
        call_id, pending = line.call(method, params, what or method, deadline)
        self.flush_soon()
        try:
            return await pending.wait()
        finally:
            if line.calls.pop(call_id, None):
                line.has_abandoned = True

    async def _wait_for_line(self, deadline: float) -> Line:
        """Give the open line, waiting for it to be opened again if need be."""
        with anyio.move_on_after(deadline - time.monotonic()):
            while self._line is None or not self._line.is_open:
                if self._is_closed:
                    raise BusUnreachable(f"{self.client_id} is not connected: nothing was sent")
                if self._failure is not None:
                    raise self._failure
                await self._line_changed.wait()
            return self._line
        raise BusUnreachable(f"no bus at {self.address}: nothing was sent")

    def flush_soon(self) -> None:
        """Write out in the next round of the loop, together with what else this round sends."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._schedule(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        flush_touched(self._touched)
        if self._line is not None:
            self._line.note_flushed()

    # Receiving

    def on(self, type_name: str = ANY_TYPE) -> Callable[[H], H]:
        """Have a function answer the messages of a type (of every type, if none is named).

        What it gets is said by its annotation: a struct (the payload, checked), `dict` (the
        payload), `msgspec.Raw` (its bytes), or else the `Incoming` message. What it returns is
        the payload of the ack, what it raises makes a failed ack.
        """

        def registered(function: H) -> H:
            self.handlers.add(type_name, function, function)
            return function

        return registered

    def messages(self) -> AsyncIterator[Incoming]:
        """Give the messages that no handler takes, one after the other, until we are closed.

        A message that the loop's body did not answer is acked when the next one is asked for.
        """
        self._is_iterated = True
        return Messages(self._next_message)

    async def _next_message(self) -> Incoming:
        while not self._inbox and not self._is_closed:
            if self._failure is not None:
                raise self._failure
            if self._inbox_filled.is_set():  # else others wait for it, too
                self._inbox_filled = anyio.Event()
            await self._inbox_filled.wait()
        if self._is_closed:
            raise StopAsyncIteration
        return self._inbox.popleft()

    def _take(self, message: Message, line: Line, request_id: RequestId) -> None:
        """Take a message from the line to whoever answers it."""
        incoming = Incoming(message, line, request_id, self)
        found = self.handlers.find(incoming) if self.handlers else None
        if found or (self.handlers and not self._is_iterated):
            self._workers.put((incoming, found))
        else:
            self._inbox.append(incoming)
            self._inbox_filled.set()

    async def _handle(self, item: tuple[Incoming, Found | None]) -> None:
        message, found = item
        ack = await self.handlers.answer(message, found)
        if not message.is_answered:
            message.answer_nowait(ack)
