"""`Client`: a peer of the bus, on asyncio or trio."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import count
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio.abc import TaskGroup

from busd import __version__
from busd.bus.address import check_name, check_pattern
from busd.bus.message import DeliveryOptions, HandedMessage, Message, Receipt
from busd.client.caller import Caller, WatchLine
from busd.client.cause import begin_handling, handled_message
from busd.client.connect import Extensions, read_extensions
from busd.client.handlers import ANY_TYPE, Found, H, Handlers
from busd.client.incoming import Incoming, Messages, encode_payload
from busd.client.line import Line
from busd.client.sending import delivery_options, repeat
from busd.client.workers import Workers
from busd.errors import BusdError, CallRefused, InvalidParams
from busd.rpc.envelope import RequestId
from busd.wire.bus_address import BusAddress
from busd.wire.places import find_bus, find_token

if TYPE_CHECKING:
    import ssl

_decode_receipt = msgspec.json.Decoder(Receipt).decode


class Client:
    """A named peer of the bus.

        async with Client("agent:bob") as bus:
            async for message in bus.messages():
                await message.reply({"type": "tg_reply", "content": {"text": "hi"}})

    A lost connection is restored automatically, with its name and its subscriptions. Calls without
    an answer raise ConnectionLost, which tells whether the request may have been delivered.
    """

    def __init__(
        self,
        client_id: str,
        *,
        address: str | None = None,
        info: dict[str, Any] | None = None,
        token: str = "",  # for TCP and WebSocket; found automatically for our own bus
        tls: ssl.SSLContext
        | None = None,  # for tls:// and wss://; default: the system's authorities
        timeout_seconds: float = 75.0,  # longer than a bus waits for acks
        concurrency: int = 64,
    ) -> None:
        check_name(client_id)
        self.client_id = client_id
        self.caller = Caller(
            client_id,
            find_bus(address),
            tls,
            timeout_seconds,
            self._take,
            self._introduce,
            self._wake,
        )
        self._info = {"name": "busd client", "version": __version__} | (info or {})
        self._token = token
        self._concurrency = concurrency
        self._extensions = Extensions()  # of the bus
        self.handlers = Handlers()
        self._patterns: dict[str, None] = {}
        self._inbox: deque[Incoming] = deque()
        self._is_iterated = False  # messages() is in use
        # Globally unique ids for 0.2 µs each, without a library, whose import would delay the
        # start of a small program by 20 ms.
        self._id_prefix = f"msg_{os.urandom(10).hex()}-"
        self._id_numbers = count(1)

    @property
    def keeps_mail(self) -> bool:
        """Whether the bus has announced that it keeps durable messages."""
        return self._extensions.mail

    # Life

    async def __aenter__(self) -> Client:
        self._inbox_filled = anyio.Event()
        self._tasks: TaskGroup = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._workers = Workers(self._tasks, self._handle, self._concurrency)
        try:
            await self.caller.open(self._tasks)
        except BaseException:
            # Raised as it is, not in the exception group that the task group would create.
            self._tasks.cancel_scope.cancel()
            await self._tasks.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.caller.close()
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def run_forever(self) -> None:
        """Run the handlers until cancelled; raise if the bus refuses us permanently."""
        self.hand_out(is_complete=True)
        await self.caller.wait_for_end()

    async def _introduce(self, line: Line) -> None:
        """Initialize, and restore our subscriptions."""
        who: dict[str, Any] = {"clientId": self.client_id, "clientInfo": self._info}
        who["extensions"] = {"deliveryAttempt": True}
        if token := self._token or find_token(self.address):
            who["auth"] = {"token": token}
        welcome = await self.caller.call_on(line, "initialize", who, inf)
        self._extensions = read_extensions(welcome)
        line.max_frame_bytes = self._extensions.max_frame_bytes or inf
        for pattern in list(self._patterns):
            await self.caller.call_on(line, "subscribe", {"address": pattern}, inf)

    def _wake(self) -> None:
        """Wake everyone who waits for a message, because the line has changed."""
        self._inbox_filled.set()

    def on_line(self, function: WatchLine) -> WatchLine:
        """Register a plain function, called when the line is lost (False) and open again (True)."""
        self.caller.watchers.append(function)
        return function

    @property
    def address(self) -> BusAddress:
        return self.caller.address

    # Sending

    async def send(
        self,
        to: str,
        payload: Any,
        *,
        sender: str | None = None,
        message_id: str | None = None,
        caused_by: str | None = None,
        timeout_seconds: float | None = None,
        durable: bool = False,
        ttl_seconds: float | None = None,
        idempotency_key: str = "",
    ) -> Receipt:
        """Send a message and wait for the acks of all addressees.

        A durable message is on the disk of the bus before it is delivered. It is sent again, with
        the same id, until the bus has accepted it or the time is up: a restart of the bus goes
        unnoticed. `receipt.is_kept` says that it waits for its addressee.

        `caused_by` is the id of the message that this one follows from; the default is the message
        that the calling handler handles. With "" it begins a new chain.
        """
        message = self._make_message(to, payload, sender, message_id, caused_by)
        if durable or ttl_seconds is not None or idempotency_key:
            message.delivery = self._options(durable, ttl_seconds, idempotency_key)
        deadline = self.caller.deadline_after(timeout_seconds)
        what = f"message to {to}"
        try:
            raw = await self.caller.call_until(deadline, "sendMessage", message, what)
        except BusdError as problem:
            raw = await repeat(
                lambda: self.caller.call_until(deadline, "sendMessage", message, what),
                message,
                deadline,
                problem,
            )
        return _decode_receipt(raw)

    async def post(
        self,
        to: str,
        payload: Any,
        *,
        sender: str | None = None,
        message_id: str | None = None,
        caused_by: str | None = None,
        durable: bool = False,
        ttl_seconds: float | None = None,
        idempotency_key: str = "",
    ) -> Receipt:
        """Send a message and wait only until the bus has accepted it; the receipt has no acks.

        A durable message, or one with an idempotency key, is accepted when it is kept for an
        absent addressee, or when its addressee has answered: this is `send`, then.
        """
        if durable or idempotency_key:
            return await self.send(
                to,
                payload,
                sender=sender,
                message_id=message_id,
                caused_by=caused_by,
                durable=durable,
                ttl_seconds=ttl_seconds,
                idempotency_key=idempotency_key,
            )
        message = self._make_message(to, payload, sender, message_id, caused_by)
        if ttl_seconds is not None:
            message.delivery = self._options(durable, ttl_seconds, idempotency_key)
        deadline = self.caller.deadline_after(None)
        try:
            return await self._post(message, deadline)
        except BusdError as problem:
            return await repeat(lambda: self._post(message, deadline), message, deadline, problem)

    def _make_message(
        self,
        to: str,
        payload: Any,
        sender: str | None,
        message_id: str | None,
        caused_by: str | None,
    ) -> Message:
        message = Message(to=to, payload=encode_payload(payload))
        message.sender = sender or self.client_id
        message.message_id = message_id or self._new_message_id()
        if self._extensions.caused_by:
            if caused_by is not None:
                message.caused_by = caused_by
            elif handled := handled_message():
                message.caused_by = handled
        return message

    def _options(
        self, durable: bool, ttl_seconds: float | None, idempotency_key: str
    ) -> DeliveryOptions:
        options = delivery_options(durable, ttl_seconds, idempotency_key)
        if (durable or idempotency_key) and not self.keeps_mail:
            # Another implementation would ignore it, and deliver twice what is sent twice.
            raise CallRefused(InvalidParams.code, "this bus keeps no mail", {"rule": "mail"})
        return options

    async def _post(self, message: Message, deadline: float) -> Receipt:
        """Send a message, then a ping.

        The bus answers a connection's requests in order, so an error (or that there is no
        addressee) arrives before the answer to the ping that follows the message.
        """
        what = f"message to {message.to}"
        line = await self.caller.wait_for_line(deadline)
        call_id, sent = line.call("sendMessage", message, what, deadline)
        try:
            await self.caller.call_on(line, "ping", {}, deadline, what)
        finally:
            if line.calls.pop(call_id, None):
                line.has_abandoned = True  # later acks are ignored
        if sent.is_done:
            return _decode_receipt(await sent.wait())
        return Receipt(True, str(message.message_id), [])

    async def call(
        self, method: str, params: Any = None, *, timeout_seconds: float | None = None
    ) -> Any:
        """Call any method of the bus and return its result; raise CallRefused for an error."""
        params = {} if params is None else params
        return msgspec.json.decode(await self.caller.call(method, params, timeout_seconds, method))

    async def ping(self) -> str:
        """Return the time of the bus."""
        return str((await self.call("ping"))["timestamp"])

    async def status(self) -> Any:
        """Return the status of the bus, in as many calls as the answer needs frames."""
        status = page = await self.call("getStatus")
        while page.pop("moreConnections", 0) and page["connections"]:
            last = page["connections"][-1]["connectionId"]
            page = await self.call("getStatus", {"after": last})
            status["connections"] += page["connections"]
        return status

    async def subscribe(self, pattern: str) -> None:
        """Receive the messages to every address that `pattern` matches, also after a reconnect."""
        check_pattern(pattern)
        await self.call("subscribe", {"address": pattern})
        self._patterns[pattern] = None

    async def unsubscribe(self, pattern: str, *, keeps_mail: bool = False) -> None:
        """Undo a subscribe of exactly the same pattern.

        With `keeps_mail` messages to it are kept until somebody subscribes again, as if the
        connection had been lost.
        """
        params: dict[str, Any] = {"address": pattern}
        if keeps_mail:
            params["keepMail"] = True
        await self.call("unsubscribe", params)
        self._patterns.pop(pattern, None)

    def _new_message_id(self) -> str:
        return f"{self._id_prefix}{next(self._id_numbers)}"

    # Receiving

    def on(self, type_name: str = ANY_TYPE) -> Callable[[H], H]:
        """Register a function that answers the messages of a type (default: of every type).

        The annotation of its argument selects what it gets: a struct (the validated payload),
        `dict` (the payload), `msgspec.Raw` (its bytes), or else the `Incoming` message. It returns
        the payload of the ack; an exception causes a failed ack.
        """

        def registered(function: H) -> H:
            self.handlers.add(type_name, function, function)
            self.hand_out()
            return function

        return registered

    def messages(self) -> AsyncIterator[Incoming]:
        """Iterate over the messages without a handler, until we are closed.

        A message that the loop's body did not answer is acked when the next one is requested.
        """
        self._is_iterated = True
        return Messages(self._next_message)

    async def _next_message(self) -> Incoming:
        while not self._inbox and not self.caller.is_closed:
            if self.caller.failure is not None:
                raise self.caller.failure
            if self._inbox_filled.is_set():  # else others wait for it, too
                self._inbox_filled = anyio.Event()
            await self._inbox_filled.wait()
        if self.caller.is_closed:
            raise StopAsyncIteration
        return self._inbox.popleft()

    def _take(self, message: HandedMessage, line: Line, request_id: RequestId) -> None:
        """Pass a message from the line to its handler or to `messages`."""
        incoming = Incoming(message, line, request_id, self)
        found = self.handlers.find(incoming) if self.handlers else None
        if found or (self.handlers and not self._is_iterated):
            self._workers.put((incoming, found))
        else:
            self._inbox.append(incoming)
            self._inbox_filled.set()

    def hand_out(self, *, is_complete: bool = False) -> None:
        """Pass messages that arrived before their handler was registered to that handler.

        The first one may arrive in the same chunk as the answer to `initialize`. If no more
        handlers will be added, `is_complete`, messages without a handler get a failed ack.
        """
        waiting, self._inbox = self._inbox, deque()
        for incoming in waiting:
            found = self.handlers.find(incoming)
            if found or (is_complete and self.handlers and not self._is_iterated):
                self._workers.put((incoming, found))
            else:
                self._inbox.append(incoming)

    async def _handle(self, item: tuple[Incoming, Found | None]) -> None:
        message, found = item
        # Not ended: this task handles messages only. `handling` would take 1 µs more.
        begin_handling(message.message_id)
        ack = await self.handlers.answer(message, found)
        if not message.is_answered:
            message.answer_nowait(ack)
