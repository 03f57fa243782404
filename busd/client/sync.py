"""`SyncClient`: the interface of `Client` for programs without an event loop."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio.from_thread
import anyio.to_thread
from anyio.from_thread import BlockingPortal
from msgspec import Raw

from busd.bus.message import Receipt
from busd.client.caller import WatchLine
from busd.client.client import Client
from busd.client.handlers import ANY_TYPE, H
from busd.client.incoming import Incoming, T
from busd.wire.bus_address import BusAddress

if TYPE_CHECKING:
    import ssl


class SyncClient:
    """A named peer of the bus, for threads.

        with SyncClient("agent:bob") as bus:
            for message in bus.messages():
                message.reply({"type": "tg_reply", "content": {"text": "hi"}})

    An event loop runs in a thread of its own; handlers run in worker threads.
    """

    def __init__(
        self,
        client_id: str,
        *,
        address: str | None = None,
        info: dict[str, Any] | None = None,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        timeout_seconds: float = 75.0,
        concurrency: int = 64,
    ) -> None:
        self._client = Client(
            client_id,
            address=address,
            info=info,
            token=token,
            tls=tls,
            timeout_seconds=timeout_seconds,
            concurrency=concurrency,
        )
        self._stack = ExitStack()
        self._is_open = False

    @property
    def client_id(self) -> str:
        return self._client.client_id

    @property
    def address(self) -> BusAddress:
        return self._client.address

    @property
    def keeps_mail(self) -> bool:
        """Whether the bus announced that it keeps durable messages."""
        return self._client.keeps_mail

    def __enter__(self) -> SyncClient:
        with ExitStack() as stack:
            portal = anyio.from_thread.start_blocking_portal(
                "asyncio", backend_options={"use_uvloop": True}
            )
            self._portal: BlockingPortal = stack.enter_context(portal)
            stack.enter_context(self._portal.wrap_async_context_manager(self._client))
            self._stack = stack.pop_all()
        self._is_open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_open = False
        self._stack.__exit__(kind, problem, trace)

    def run_forever(self) -> None:
        """Run the handlers until the program is interrupted."""
        self._portal.call(self._client.run_forever)

    def send(
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
        """Send a message and wait for the acks of all addressees; see `Client.send`."""
        return self._portal.call(
            lambda: self._client.send(
                to,
                payload,
                sender=sender,
                message_id=message_id,
                caused_by=caused_by,
                timeout_seconds=timeout_seconds,
                durable=durable,
                ttl_seconds=ttl_seconds,
                idempotency_key=idempotency_key,
            )
        )

    def post(
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
        """Send a message and wait only until the bus has accepted it; see `Client.post`."""
        return self._portal.call(
            lambda: self._client.post(
                to,
                payload,
                sender=sender,
                message_id=message_id,
                caused_by=caused_by,
                durable=durable,
                ttl_seconds=ttl_seconds,
                idempotency_key=idempotency_key,
            )
        )

    def call(self, method: str, params: Any = None, *, timeout_seconds: float | None = None) -> Any:
        """Call any method of the bus and return its result; raise CallRefused for an error."""
        return self._portal.call(
            lambda: self._client.call(method, params, timeout_seconds=timeout_seconds)
        )

    def ping(self) -> str:
        """Return the time of the bus."""
        return self._portal.call(self._client.ping)

    def status(self) -> Any:
        """Return the status of the bus."""
        return self._portal.call(self._client.status)

    def subscribe(self, pattern: str) -> None:
        """Receive the messages to every address that `pattern` matches, also after a reconnect."""
        self._portal.call(self._client.subscribe, pattern)

    def unsubscribe(self, pattern: str, *, keeps_mail: bool = False) -> None:
        """Undo a subscribe of exactly the same pattern; see `Client.unsubscribe`."""
        self._portal.call(partial(self._client.unsubscribe, pattern, keeps_mail=keeps_mail))

    def on(self, type_name: str = ANY_TYPE) -> Callable[[H], H]:
        """Register a function that answers the messages of a type, in a thread; see `Client.on`."""

        def registered(function: H) -> H:
            if inspect.iscoroutinefunction(function):
                raise TypeError("a handler of a SyncClient is a plain function, not an async one")

            async def run_in_thread(argument: Any) -> Any:
                if isinstance(argument, Incoming):
                    argument = SyncIncoming(argument, self._portal)
                return await anyio.to_thread.run_sync(function, argument)

            self._client.handlers.add(type_name, function, run_in_thread)
            if self._is_open:
                self._portal.call(self._client.hand_out)
            return function

        return registered

    def on_line(self, function: WatchLine) -> WatchLine:
        """Register a function, called when the line is lost (False) and open again (True).

        It is called in the thread of the loop, and must neither block nor use this client: set a
        threading.Event, or put something into a queue.
        """
        return self._client.on_line(function)

    def messages(self) -> Iterator[SyncIncoming]:
        """Iterate over the messages without a handler, as `Client.messages` does."""
        messages = self._client.messages()
        while True:
            try:
                message = self._portal.call(messages.__anext__)
            except StopAsyncIteration:
                return
            yield SyncIncoming(message, self._portal)


class SyncIncoming:
    """A received message; it needs exactly one answer."""

    def __init__(self, message: Incoming, portal: BlockingPortal) -> None:
        self._message = message
        self._portal = portal
        self.sender = message.sender
        self.to = message.to
        self.message_id = message.message_id
        self.delivery_attempt = message.delivery_attempt
        self.is_redelivery = message.is_redelivery

    def __repr__(self) -> str:
        return repr(self._message)

    @property
    def raw(self) -> Raw:
        """The payload, byte for byte as sent."""
        return self._message.raw

    @property
    def payload(self) -> Any:
        """The payload as dicts and lists."""
        return self._message.payload

    @property
    def type(self) -> str:
        """The payload's `type`, or "" if it has none."""
        return self._message.type

    @property
    def is_answered(self) -> bool:
        return self._message.is_answered

    def read(self, kind: builtins.type[T]) -> T:
        """Return the payload as `kind`; raise Refuse with the name of an invalid member."""
        return self._message.read(kind)

    def reply(self, payload: Any = None) -> bool:
        """Ack the message; return False if its connection is lost."""
        return bool(self._portal.call(self._message.reply, payload))

    def fail(self, reason: str, *, retry_seconds: float | None = None) -> bool:
        """Send a failed ack, with the time after which a retry may help."""
        return bool(
            self._portal.call(lambda: self._message.fail(reason, retry_seconds=retry_seconds))
        )
