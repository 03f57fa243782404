"""The context of a plugin's function: its message, and its access to the bus."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Generator, Iterable
from functools import cached_property
from hashlib import blake2b
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import msgspec
from msgspec import UNSET, Raw
from ulid import ULID

from busd.bus.address import check_address
from busd.bus.message import NOTHING, DeliveryOptions, Message, Receipt, check_message_id
from busd.client.incoming import encode_payload
from busd.errors import NotSubscribed, Refuse, RequestError
from busd.plugin.declared import bundled_settings, read_tables
from busd.rpc.envelope import RequestId
from busd.rpc.reading import Id
from busd.struct_faults import convert
from busd.vocabulary.payload import Payload, author_of, decode_payload, type_name_of, write_message

if TYPE_CHECKING:
    from busd.bus.access import Identity
    from busd.bus.peer import Peer
    from busd.plugin.host import PluginSettings
    from busd.plugin.mail import PluginMail
    from busd.plugin.running import RunningPlugin
    from busd.plugin.tasks import GuardedTasks

S = TypeVar("S", bound=msgspec.Struct)


class Context:
    """One for each message; hooks get one without a message."""

    def __init__(
        self, running: RunningPlugin, message: Message | None = None, sender: str = ""
    ) -> None:
        self._running = running
        self._message = message
        self.sender = sender if message is None else str(message.sender)
        self.to = "" if message is None else message.to
        self.message_id = "" if message is None else str(message.message_id)
        self.payload = NOTHING if message is None else message.payload

    def __repr__(self) -> str:
        return f"<Context {self._running.name} {self.message_id or 'without a message'}>"

    # The message

    @cached_property
    def _head(self) -> Payload:
        """The payload's envelope, as far as it can be read."""
        try:
            return decode_payload(self.payload)
        except (msgspec.MsgspecError, RecursionError):
            return Payload()

    @property
    def type(self) -> str:
        """The payload's type, or "" if it has none that can be read."""
        return self._head.type

    @property
    def said_by(self) -> str:
        """The payload's `from`, else the sender."""
        return self._head.sender or self.sender

    @property
    def own_message_id(self) -> Id:
        """The payload's own `messageId`, assigned by its author; "" if it has none."""
        return self._head.message_id or ""

    @property
    def author(self) -> str:
        """The author: the sender or, if that is a bridge, the address that the payload contains."""
        return author_of(self.sender, self.payload)

    # The plugin's environment

    @property
    def settings(self) -> Any:
        """The current settings of the daemon; Any, because a higher layer defines their type."""
        return self._running.host.settings

    def own_settings(self, kind: builtins.type[S]) -> S:
        """Return the table `[plugins.settings.NAME]` as a struct; raise ConfigError.

        For a bundled plugin that declares tables of its own, return those.
        """
        running = self._running
        candidate = running.loaded.candidate
        declared = bundled_settings().get(candidate.name)
        if declared is not None and candidate.is_bundled:
            return read_tables(self.settings, kind, declared.within)
        said = self.limits.settings.get(running.name, {})
        return convert(said, kind, f"plugins.settings.{running.name}")

    @property
    def limits(self) -> PluginSettings:
        """The table `[plugins]`: the limits of all plugins."""
        return self._running.host.limits

    @property
    def state(self) -> Path:
        """The daemon's state directory, which persists across restarts; an absolute path."""
        return Path(self.settings.state).resolve()  # processes of plugins run in another directory

    @property
    def log(self) -> Any:
        """A logger bound to the plugin's name; Any, as in structlog."""
        return self._running.log

    @property
    def tasks(self) -> GuardedTasks:
        """Starts tasks (`start_soon`, `start`) that end with the plugin; one may fail alone."""
        return self._running.tasks

    @property
    def bus_address(self) -> str:
        """Where local workers connect."""
        return self._running.host.bus_address

    @property
    def web_socket_address(self) -> str:
        """The WebSocket address of the bus for processes of this host; "" if there is none."""
        return self._running.host.web_socket_address

    # The bus

    def send(
        self, to: str, value: Any, *, sender: str | None = None, message_id: str | None = None
    ) -> Sent:
        """Send a message, which is delivered during this call; await the result for its acks.

        `value` is a struct with `@message`, another struct or a dict (the whole payload), or Raw.
        """
        sent = Sent(message_id or f"msg_{ULID()}")
        self._deliver(to, value, sender, sent, 0)
        return sent

    def post(self, to: str, value: Any, *, sender: str | None = None) -> None:
        """Send a message without waiting for its acks."""
        self._deliver(to, value, sender, Sent(f"msg_{ULID()}"), UNSET)

    def forward(
        self, to: str | None = None, *, durable: bool = False, patience_seconds: float | None = None
    ) -> Sent:
        """Forward this message unchanged (payload, sender and id), but never to this plugin.

        Without `to` it goes to the other subscribers of its address. With `durable` it is kept on
        the disk before it is handed over, also while nobody answers for `to`. The result is then
        the answer if it comes within `patience_seconds`, else that it is kept. Forwarded again
        with the same sender, id and payload it is not delivered again: the result is the first
        one's. Either way this is one more message of the chain of causes.
        """
        if self._message is None:
            raise RuntimeError("there is no message to forward")
        if durable and to is None:
            raise ValueError("a message is kept for another address than the one it came to")
        sent = Sent(self.message_id)
        message = Message(
            sender=self.sender,
            to=self.to if to is None else to,
            message_id=self.message_id,
            caused_by=self.message_id,
            payload=self.payload,
        )
        running, bus = self._running, self._running.host.bus
        try:
            if durable:
                message.delivery = _once(message)
                boxes, allowance = bus.find_mailboxes(), running.peer.allowance
                boxes.keep(message, sent, 0, allowance, True, patience_seconds)
            else:
                bus.deliver_past(running.peer, message, sent, 0)
        except RequestError as fault:
            self._refused(sent, message.to, fault)
        running.host.flush_soon()
        return sent

    def tell(self, client_id: str, value: Any, *, sender: str | None = None) -> Sent:
        """Send a message directly to the connected peers of a name, before all that waits for it.

        It reaches nobody else, is not kept, and may overtake mail.
        """
        sent = Sent(f"msg_{ULID()}")
        peers = tuple(self._running.host.bus.present(client_id))
        self._deliver(client_id, value, sender, sent, 0, peers)
        return sent

    def _deliver(
        self,
        to: str,
        value: Any,
        sender: str | None,
        sent: Sent,
        request_id: RequestId,
        peers: tuple[Peer, ...] | None = None,
    ) -> None:
        running = self._running
        sender = sender or running.peer.name
        payload = payload_of(value, sender, sent.message_id)
        try:
            check_address(sender)
            check_message_id(sent.message_id)
            message = Message(sender=sender, to=to, message_id=sent.message_id, payload=payload)
            if self._message is not None:
                message.caused_by = self.message_id
            bus, allowance = running.host.bus, running.peer.allowance
            bus.deliver(message, sent, request_id, allowance, peers)
        except RequestError as fault:
            self._refused(sent, to, fault)
        running.host.flush_soon()

    def _refused(self, sent: Sent, to: str, fault: RequestError) -> None:
        """Log the refusal and settle `sent` with it: a result, not an exception."""
        self.log.warning("message.refused", to=to[:255], reason=fault.message)
        sent.fail(0, fault)

    @property
    def mail(self) -> PluginMail:
        """The mail of the addresses that the plugin keeps mail for."""
        return self._running.mail

    def subscribe(self, address: str) -> None:
        """Subscribe to an address or pattern; raise Refuse if that is not allowed."""
        running = self._running
        if not running.has_peer:
            raise Refuse(f"plugin {running.name} has stopped")
        try:
            running.host.bus.subscribe(running.peer, address)
            running.subscriptions.add(address)
        except RequestError as fault:
            raise Refuse(fault.message) from None

    def unsubscribe(self, address: str) -> None:
        """Unsubscribe; do nothing if there is no such subscription."""
        running = self._running
        running.subscriptions.discard(address)
        try:
            if running.has_peer:
                running.host.bus.unsubscribe(running.peer, address)
        except NotSubscribed:
            pass

    @property
    def is_stopping(self) -> bool:
        """True if the bus is about to stop: it accepts no messages and no connections."""
        return self._running.host.bus.is_stopping

    def is_present(self, client_id: str) -> bool:
        """True if a remote peer of that name is on the bus."""
        return bool(self._running.host.bus.present(client_id))

    def dismiss(self, client_id: str, may_stay: Callable[[Identity], bool], reason: str) -> None:
        """Close the connections under a remote peer's name whose identity may not use it."""
        self._running.host.bus.dismiss(client_id, may_stay, reason)

    def heard(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return the activity of each of these remote peers that is connected.

        The first number grows with its input, the second is the number of acks it owes.
        """
        return self._running.host.bus.presence.heard(names)


class _Answered(msgspec.Struct):
    result: Receipt


_decode_answer = msgspec.json.Decoder(_Answered).decode


class Sent:
    """A message that was sent; awaiting it returns its Receipt, any number of times.

    One that the bus did not accept has `accepted=False` and the reason in `undelivered`.
    """

    __slots__ = ("_event", "message_id", "receipt", "retry_seconds")

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self.receipt: Receipt | None = None
        self.retry_seconds: float | None = None  # when to try again what was not accepted
        self._event: anyio.Event | None = None

    def __await__(self) -> Generator[Any, Any, Receipt]:
        while self.receipt is None:
            if self._event is None:
                self._event = anyio.Event()
            yield from self._event.wait().__await__()
        return self.receipt

    # The interface of a sender, which the bus calls

    max_frame_bytes = inf
    out = ()

    def answer(self, request_id: RequestId, result: Any, /) -> None:
        self.receipt = result
        if self._event is not None:
            self._event.set()

    def answer_encoded(self, frame: bytes, /) -> None:
        self.answer(0, _decode_answer(frame).result)

    def fail(self, request_id: RequestId, fault: RequestError, /) -> None:
        retry_seconds = fault.data.get("retrySeconds")
        self.retry_seconds = retry_seconds if isinstance(retry_seconds, int | float) else None
        self.answer(request_id, Receipt(False, self.message_id, [], fault.message))

    def charge(self) -> None: ...


def _once(message: Message) -> DeliveryOptions:
    """Return the options of a message that is delivered once, however often it is forwarded.

    Its payload is part of the key: senders that number their messages begin again with 1.
    """
    digest = blake2b(bytes(message.payload), digest_size=16).hexdigest()
    return DeliveryOptions(durable=True, idempotency_key=f"{message.message_id}:{digest}")


def payload_of(value: Any, sender: str, message_id: str = "") -> Raw:
    """Return the payload for a value; raise TypeError if it cannot be one."""
    if isinstance(value, msgspec.Struct) and type_name_of(type(value)):
        return write_message(value, sender=sender, message_id=message_id)
    return encode_payload(value)
