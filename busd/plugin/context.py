"""The context: what a plugin's function knows of its message, and what it can do on the bus."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Generator, Iterable
from functools import cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import msgspec
from msgspec import UNSET, Raw
from ulid import ULID

from busd.bus.address import check_address
from busd.bus.message import NOTHING, Message, Receipt, check_message_id
from busd.client.incoming import encode_payload
from busd.errors import NotSubscribed, Refuse, RequestError
from busd.rpc.envelope import RequestId
from busd.rpc.reading import Id
from busd.struct_faults import convert
from busd.vocabulary.payload import Payload, author_of, decode_payload, type_name_of, write_message

if TYPE_CHECKING:
    from busd.bus.access import Identity
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
        """Who the payload says it is from, else the sender."""
        return self._head.sender or self.sender

    @property
    def own_message_id(self) -> Id:
        """The payload's own `messageId`, by which its author knows it; "" if it has none."""
        return self._head.message_id or ""

    @property
    def author(self) -> str:
        """Whose words it has: the sender's, or, if that is a bridge, those of whom it names."""
        return author_of(self.sender, self.payload)

    # The plugin's place

    @property
    def settings(self) -> Any:
        """The settings of the daemon, as they are now; Any, because they are made above us."""
        return self._running.host.settings

    def own_settings(self, kind: builtins.type[S]) -> S:
        """Return the table `[plugins.settings.NAME]` as a struct; raise ConfigError."""
        name = self._running.name
        said = self.settings.plugins.settings.get(name, {})
        return convert(said, kind, f"plugins.settings.{name}")

    @property
    def state(self) -> Path:
        """The folder that outlives a restart; the daemon's own. An absolute path."""
        return Path(self.settings.state).resolve()  # what plugins start runs elsewhere

    @property
    def log(self) -> Any:
        """A log that names the plugin; Any, as structlog has it."""
        return self._running.log

    @property
    def tasks(self) -> GuardedTasks:
        """Starts tasks (`start_soon`, `start`) that end with the plugin; one may raise alone."""
        return self._running.tasks

    @property
    def bus_address(self) -> str:
        """Where local workers connect."""
        return self._running.host.bus_address

    @property
    def web_socket_address(self) -> str:
        """Where a process of this host finds the bus by WebSocket; "" if it does not listen so."""
        return self._running.host.web_socket_address

    # The bus

    def send(
        self, to: str, value: Any, *, sender: str | None = None, message_id: str | None = None
    ) -> Sent:
        """Send a message, which is handed over during this call; await the result for its acks.

        `value` is a struct with `@message`, another struct or a dict (the whole payload), or Raw.
        """
        sent = Sent(message_id or f"msg_{ULID()}")
        self._deliver(to, value, sender, sent, 0)
        return sent

    def post(self, to: str, value: Any, *, sender: str | None = None) -> None:
        """Send a message whose acks nobody waits for."""
        self._deliver(to, value, sender, Sent(f"msg_{ULID()}"), UNSET)

    def forward(self, to: str | None = None) -> Sent:
        """Pass this very message on: the same payload, sender and id; never to this plugin itself.

        Without `to` it goes to the others that are subscribed to the same address.
        """
        if self._message is None:
            raise RuntimeError("there is no message to forward")
        sent = Sent(self.message_id)
        message = Message(
            sender=self.sender,
            to=self.to if to is None else to,
            message_id=self.message_id,
            payload=self.payload,
        )
        running = self._running
        try:
            running.host.bus.deliver_past(running.peer, message, sent, 0)
        except RequestError as fault:
            self._refused(sent, message.to, fault)
        running.host.flush_soon()
        return sent

    def _deliver(
        self, to: str, value: Any, sender: str | None, sent: Sent, request_id: RequestId
    ) -> None:
        running = self._running
        sender = sender or running.peer.name
        payload = payload_of(value, sender, sent.message_id)
        try:
            check_address(sender)
            check_message_id(sent.message_id)
            message = Message(sender=sender, to=to, message_id=sent.message_id, payload=payload)
            running.host.bus.deliver(message, sent, request_id, running.peer.allowance)
        except RequestError as fault:
            self._refused(sent, to, fault)
        running.host.flush_soon()

    def _refused(self, sent: Sent, to: str, fault: RequestError) -> None:
        """Nobody gets it; that is an outcome, not an exception."""
        self.log.warning("message.refused", to=to[:255], reason=fault.message)
        sent.fail(0, fault)

    def subscribe(self, address: str) -> None:
        """Get what is sent to an address or pattern, too; raises Refuse if that cannot be."""
        running = self._running
        if not running.has_peer:
            raise Refuse(f"plugin {running.name} has stopped")
        try:
            running.host.bus.subscribe(running.peer, address)
            running.subscriptions.add(address)
        except RequestError as fault:
            raise Refuse(fault.message) from None

    def unsubscribe(self, address: str) -> None:
        """Get it no more; nothing happens if it was not subscribed to."""
        running = self._running
        running.subscriptions.discard(address)
        try:
            if running.has_peer:
                running.host.bus.unsubscribe(running.peer, address)
        except NotSubscribed:
            pass

    def is_present(self, client_id: str) -> bool:
        """True if a remote peer of that name is on the bus."""
        return bool(self._running.host.bus.present(client_id))

    def dismiss(self, client_id: str, may_stay: Callable[[Identity], bool], reason: str) -> None:
        """Close the connections of a remote peer's name whose identity may not have it."""
        self._running.host.bus.dismiss(client_id, may_stay, reason)

    def heard(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return, for each of these remote peers that is here, what it said and owes.

        The first is a number that grows when it speaks, the second how many acks it owes.
        """
        return self._running.host.bus.presence.heard(names)


class _Answered(msgspec.Struct):
    result: Receipt


_decode_answer = msgspec.json.Decoder(_Answered).decode


class Sent:
    """A message that was handed over; awaiting it gives its Receipt, as often as one likes.

    One that the bus did not accept has `accepted=False` and the reason in `undelivered`.
    """

    __slots__ = ("_event", "message_id", "receipt")

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self.receipt: Receipt | None = None
        self._event: anyio.Event | None = None

    def __await__(self) -> Generator[Any, Any, Receipt]:
        while self.receipt is None:
            if self._event is None:
                self._event = anyio.Event()
            yield from self._event.wait().__await__()
        return self.receipt

    # As whoever asked the bus to deliver it

    max_frame_bytes = inf
    out = ()

    def answer(self, request_id: RequestId, result: Any, /) -> None:
        self.receipt = result
        if self._event is not None:
            self._event.set()

    def answer_encoded(self, frame: bytes, /) -> None:
        self.answer(0, _decode_answer(frame).result)

    def fail(self, request_id: RequestId, fault: RequestError, /) -> None:
        self.answer(request_id, Receipt(False, self.message_id, [], fault.message))

    def charge(self) -> None: ...


def payload_of(value: Any, sender: str, message_id: str = "") -> Raw:
    """Return the payload that a value is or stands for; raise TypeError if it is none."""
    if isinstance(value, msgspec.Struct) and type_name_of(type(value)):
        return write_message(value, sender=sender, message_id=message_id)
    return encode_payload(value)
