"""A client of the bus in memory, for code that is given a client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from msgspec import Raw

from busd.bus.message import Ack
from busd.client.incoming import ack_of, failed_ack
from busd.errors import ConnectionLost, Refuse
from busd.rpc.envelope import LooseEnvelope, encode
from busd.testing.answers import Answer, Handed
from busd.testing.bus import MemoryBus
from busd.testing.peer import ScriptedPeer
from busd.vocabulary.payload import type_of
from busd.wire.credentials import Credentials

Handler = Callable[[Any], Awaitable[Any]]


class MemoryMessage:
    """A message as a handler gets it, with the members of `busd.client.incoming.Incoming`."""

    def __init__(self, handed: Handed) -> None:
        self.sender = handed.sender
        self.to = handed.to
        self.message_id = handed.message_id
        self.raw = Raw(handed.raw_payload)
        self.type = type_of(self.raw)
        self.is_redelivery = (handed.delivery_attempt or 1) > 1


class _NotifyingPeer(ScriptedPeer):
    """A scripted peer that says when something has arrived."""

    def __init__(self, name: str, bus: MemoryBus, on_arrival: Callable[[], None]) -> None:
        self._on_arrival = on_arrival
        connection = bus.connections.make(f"memory:{name}", Credentials(uid=0, by="unix"))
        super().__init__(name, connection, bus._soon, web_socket=False, chunk=None)

    def _take_one(self, envelope: LooseEnvelope) -> None:
        super()._take_one(envelope)
        self._on_arrival()


class MemoryClient:
    """A peer with handlers; `lose` and `restore` do what happens to a real connection."""

    keeps_mail = True

    def __init__(self, bus: MemoryBus, name: str) -> None:
        self.name = name
        self.handling = 0  # messages that a handler has and has not answered
        self._bus = bus
        self._handler: Handler | None = None
        self._watchers: list[Callable[[bool], None]] = []
        self._patterns: dict[str, None] = {}
        self._peer: _NotifyingPeer | None = None
        self._arrived = anyio.Event()
        self._line = anyio.Event()

    async def __aenter__(self) -> MemoryClient:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._join()
        return self

    async def __aexit__(self, *ended: Any) -> None:
        if self._peer is not None:
            self._peer.leave()
        self._handler = None
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    def _join(self) -> None:
        self._peer = peer = _NotifyingPeer(self.name, self._bus, self._on_arrival)
        peer.initialize(extensions={"deliveryAttempt": True}).check()
        for pattern in self._patterns:
            peer.subscribe(pattern)
        self._line.set()

    # The line

    def lose(self) -> None:
        """Lose the connection."""
        assert self._peer is not None
        peer, self._peer = self._peer, None
        self._line = anyio.Event()
        peer.leave()
        self._wake()
        for watcher in self._watchers:
            watcher(False)

    def restore(self) -> None:
        """Connect again, with the same name and subscriptions."""
        self._join()
        for watcher in self._watchers:
            watcher(True)

    def on_line(self, function: Callable[[bool], None], /) -> Callable[[bool], None]:
        self._watchers.append(function)
        return function

    async def run_forever(self) -> None:
        await anyio.sleep_forever()

    # Calls

    async def subscribe(self, pattern: str) -> None:
        await self.call("subscribe", {"address": pattern})
        self._patterns[pattern] = None

    async def unsubscribe(self, pattern: str, *, keeps_mail: bool = False) -> None:
        await self.call("unsubscribe", {"address": pattern, "keepMail": keeps_mail})
        self._patterns.pop(pattern, None)

    async def call(self, method: str, params: Any = None) -> Any:
        """Call a method of the bus; raise CallRefused, or ConnectionLost if the line is lost."""
        while (peer := self._peer) is None:
            await self._line.wait()
        answer: Answer[Any] = peer.call(method, {} if params is None else params)
        while not answer.is_done:
            if peer is not self._peer:
                raise ConnectionLost(method, maybe_delivered=True)
            arrived = self._arrived
            await arrived.wait()
        return answer.result

    def _wake(self) -> None:
        self._arrived.set()
        self._arrived = anyio.Event()

    # Messages

    def on(self) -> Callable[[Handler], Handler]:
        def registered(handler: Handler) -> Handler:
            self._handler = handler
            return handler

        return registered

    def _on_arrival(self) -> None:
        self._wake()
        while self._peer is not None and self._peer.inbox and self._handler is not None:
            handed = self._peer.inbox.popleft()
            self.handling += 1
            self._tasks.start_soon(self._handle, self._handler, handed)

    async def _handle(self, handler: Handler, handed: Handed) -> None:
        try:
            ack = ack_of(await handler(MemoryMessage(handed)))
        except Refuse as refusal:
            ack = failed_ack(refusal.reason, refusal.retry_seconds)
        finally:
            self.handling -= 1
        self._answer(handed, ack)

    def _answer(self, handed: Handed, ack: Ack) -> None:
        handed.answer_raw(encode(ack))
