"""The bus side: one peer of the bus, subscribed to exactly the conversations that are held.

Messages go one way each: what the bus hands over is passed to `take`, whose answer is the ack; and
`send` makes one attempt to send. The outbox repeats it, because it keeps the order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self

import anyio
import msgspec
import structlog
from anyio.lowlevel import checkpoint
from msgspec import UNSET, Raw

from busd.bus.message import DeliveryOptions, Message
from busd.client.connect import pauses
from busd.client.incoming import Incoming
from busd.errors import BusdError, BusUnreachable, CallRefused, NoAnswer
from busd.gateway.receipts import ReceiptSeen
from busd.vocabulary.addresses import event_address

log = structlog.get_logger("busd.gateway")

_AT_ONCE = 64  # addresses that are subscribed to at the same time
_PAUSE_SECONDS = 0.05


class BusClient(Protocol):
    """What is used of `busd.Client`."""

    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, *ended: Any) -> None: ...
    @property
    def keeps_mail(self) -> bool: ...
    def on(self) -> Callable[[Any], Any]: ...
    def on_line(self, function: Callable[[bool], None], /) -> Any: ...
    async def run_forever(self) -> None: ...
    async def subscribe(self, pattern: str) -> None: ...
    async def unsubscribe(self, pattern: str, *, keeps_mail: bool = False) -> None: ...
    async def call(self, method: str, params: Any = None) -> Any: ...


class Subscription:
    """An address that is wanted, or was until now."""

    def __init__(self, address: str) -> None:
        self.address = address
        # The events first: mail for the address itself arrives at once.
        self.patterns = (event_address(address), address)
        self.is_wanted = True
        self.held: set[str] = set()  # the patterns that the bus knows
        self.became_held = anyio.Event()  # or was refused
        self.refusal: CallRefused | None = None

    @property
    def is_held(self) -> bool:
        return self.is_wanted and len(self.held) == len(self.patterns)


class BusSide:
    """The gateway's connection to the bus, made again whenever it is lost."""

    def __init__(
        self,
        make_client: Callable[[], BusClient],
        take: Callable[[Incoming], Awaitable[Any]],
    ) -> None:
        self._make_client = make_client
        self._take = take
        self._client: BusClient | None = None
        self._subscriptions: dict[str, Subscription] = {}
        self._due: dict[str, Subscription] = {}  # to be compared with the bus
        self._scopes: set[anyio.CancelScope] = set()  # of what ends with the line
        self._is_comparing = False
        self.is_connected = False
        self.lines = 0  # connections so far: events that are sent between two of them are lost

    def __enter__(self) -> Self:
        self._became_due = anyio.Event()
        self._connected = anyio.Event()
        return self

    def __exit__(self, *ended: object) -> None:
        self._on_line(is_open=False)

    async def run(self) -> None:
        """Stay connected until cancelled; raise CallRefused if the bus refuses us permanently."""
        waits = pauses()
        reason = ""  # why it was not reached the last time
        while True:
            client = self._make_client()
            client.on()(self._answer)
            client.on_line(lambda is_open: self._on_line(is_open=is_open))
            try:
                async with client:
                    self._client = client
                    self._on_line(is_open=True)
                    reason = ""
                    await self._serve(client)
            except (BusUnreachable, NoAnswer) as problem:
                if str(problem) != reason:  # not at each attempt
                    log.warning("bus.unreachable", reason=str(problem))
                reason = str(problem)
                await anyio.sleep(next(waits))
            finally:
                self._on_line(is_open=False)

    async def _serve(self, client: BusClient) -> None:
        """Subscribe until the client is refused."""
        problem: BusdError | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._subscribe_forever)
            try:
                await client.run_forever()
            except BusdError as refusal:
                problem = refusal  # raised as it is, not in the group we would make of it
            tasks.cancel_scope.cancel()
        if problem is not None:
            raise problem

    async def _answer(self, message: Incoming) -> Any:
        return await self._take(message)

    # The line

    def _on_line(self, *, is_open: bool) -> None:
        if is_open == self.is_connected:
            return
        self.is_connected = is_open
        log.info("bus.connected" if is_open else "bus.lost")
        if is_open:
            self.lines += 1
            self._connected.set()
            return
        self._connected = anyio.Event()
        for scope in list(self._scopes):
            scope.cancel()

    @contextmanager
    def on_this_line(self) -> Iterator[None]:
        """Cancel the block when the line is lost."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)

    async def wait_until_held(self, address: str) -> None:
        """Wait for a line on which answers to an address arrive; raise CallRefused."""
        while True:
            await self._connected.wait()
            subscription = self._subscriptions.get(address)
            if subscription is None:
                self.hold(address)
            elif subscription.refusal is not None:
                raise subscription.refusal
            elif subscription.is_held and self.is_connected:
                return
            else:
                await subscription.became_held.wait()
                await checkpoint()

    # Subscriptions

    @property
    def is_behind(self) -> bool:
        """Whether there is a connection that does not know yet what is wanted."""
        return self.is_connected and (bool(self._due) or self._is_comparing)

    def hold(self, address: str) -> None:
        """Receive what is sent to an address and to its `events:` address, also what waits."""
        subscription = self._subscriptions.setdefault(address, Subscription(address))
        subscription.is_wanted = True
        self._compare_soon(subscription)

    def release(self, address: str) -> None:
        """Let the bus keep what is sent to an address from now on."""
        if subscription := self._subscriptions.get(address):
            subscription.is_wanted = False
            self._compare_soon(subscription)

    def _compare_soon(self, subscription: Subscription) -> None:
        self._due[subscription.address] = subscription
        self._became_due.set()

    async def _subscribe_forever(self) -> None:
        while True:
            self._became_due = anyio.Event()
            if not self._due:
                await self._became_due.wait()
                continue
            batch = [self._due.pop(address) for address in list(self._due)[:_AT_ONCE]]
            self._is_comparing = True
            async with anyio.create_task_group() as tasks:
                for subscription in batch:
                    tasks.start_soon(self._compare, subscription)
            self._is_comparing = False

    async def _compare(self, subscription: Subscription) -> None:
        """Make the bus know what is wanted; what changes meanwhile is compared again."""
        assert self._client is not None
        held = subscription.held
        subscription.refusal = None
        try:
            if subscription.is_wanted:
                for pattern in subscription.patterns:
                    if pattern not in held:
                        await self._client.subscribe(pattern)
                        held.add(pattern)
                subscription.became_held.set()
                return
            subscription.became_held = anyio.Event()
            for pattern in reversed(subscription.patterns):
                if pattern in held:
                    await self._client.unsubscribe(
                        pattern, keeps_mail=pattern == subscription.address
                    )
                    held.discard(pattern)
            if not subscription.is_wanted:
                self._subscriptions.pop(subscription.address, None)
        except CallRefused as refusal:
            log.error("subscription.refused", address=subscription.address, reason=str(refusal))
            subscription.refusal = refusal
            subscription.became_held.set()
        except BusdError:
            await anyio.sleep(_PAUSE_SECONDS)  # until the loss of the line is known everywhere
            self._compare_soon(subscription)

    # Sending

    async def send(self, to: str, payload: bytes, sender: str, message_id: str) -> ReceiptSeen:
        """Send a message once and return what became of it; raise BusdError.

        The bus recognizes it by its id if it is sent again, and keeps it for an addressee that is
        away. It is not durable: a name that no agent has is to be noticed.
        """
        assert self._client is not None
        message = Message(sender=sender, to=to, message_id=message_id, payload=Raw(payload))
        message.caused_by = ""  # what a user says follows from nothing
        if self._client.keeps_mail:
            message.delivery = DeliveryOptions(idempotency_key=message_id)
        else:
            message.caused_by = UNSET  # another implementation, which may not know it
        return msgspec.convert(await self._client.call("sendMessage", message), ReceiptSeen)
