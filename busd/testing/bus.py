"""A bus in memory: the real core, with peers without sockets and a simulated clock."""

from __future__ import annotations

from collections.abc import Iterable

from busd.bus.access import Grant, Policy
from busd.bus.authenticator import Authenticator
from busd.bus.bus import Bus
from busd.bus.delivery import DeliveryLimits
from busd.bus.message import Outcome
from busd.bus.methods import methods
from busd.bus.quota import QuotaLimits
from busd.testing.peer import ScriptedPeer
from busd.testing.transport import Soon
from busd.wire.connection import WireLimits
from busd.wire.connections import Connections
from busd.wire.credentials import Credentials
from busd.wire.http_gate import HttpGate

SWEEP_SECONDS = 0.25  # as the daemon does


class FakeClock:
    """A clock that moves only when it is set."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class MemoryBus:
    """One bus without sockets; `core` and `connections` are the daemon's own.

    >>> bus = MemoryBus()
    >>> alice, bob = bus.join("agent:alice"), bus.join("agent:bob")
    >>> sent = alice.send("agent:bob", {"text": "hi"})
    >>> bob.next_message().ack({"text": "hi yourself"})
    >>> sent.result.acks[0].payload
    {'text': 'hi yourself'}
    """

    def __init__(
        self,
        limits: DeliveryLimits | None = None,
        *,
        wire: WireLimits | None = None,
        quota: QuotaLimits | None = None,
        policy: Policy = "open",
        grants: Iterable[Grant] = (),
        allowed_origins: Iterable[str] = (),
    ) -> None:
        self.clock = FakeClock()
        granted = grants or [Grant(name="everybody", uid=0)]
        authenticator = Authenticator(policy, granted, clock=self.clock)
        self.core = Bus(methods, limits, authenticator, self.clock, quota)
        self._soon = Soon()
        self.connections = Connections(
            wire or WireLimits(),
            HttpGate(allowed_origins),
            self.core.make_session,
            self._soon.run,
            self.clock,
            self.core.end_session,
        )
        self.core.wake = lambda: self._soon.run(self._work)

    def connect(
        self,
        name: str = "stranger",
        *,
        web_socket: bool = False,
        chunk: int | None = None,
        credentials: Credentials | None = None,
    ) -> ScriptedPeer:
        """Return a peer that is connected but has not initialized.

        With `chunk` the bus receives the peer's output in pieces of that many bytes.
        """
        known = credentials or Credentials(uid=0, by="unix")
        connection = self.connections.make(f"memory:{name}", known)
        return ScriptedPeer(name, connection, self._soon, web_socket=web_socket, chunk=chunk)

    def join(
        self,
        client_id: str,
        *,
        subscribe: Iterable[str] = (),
        info: object = None,
        web_socket: bool = False,
        chunk: int | None = None,
    ) -> ScriptedPeer:
        """Return a peer that has initialized and subscribed; raise CallRefused if it may not."""
        peer = self.connect(client_id, web_socket=web_socket, chunk=chunk)
        peer.initialize(info=info).check()
        for pattern in subscribe:
            peer.subscribe(pattern)
        return peer

    def advance(self, seconds: float, *, step: float = SWEEP_SECONDS) -> None:
        """Advance the clock; the bus sweeps as often as in the daemon, or every `step` seconds."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now = min(self.clock.now + step, end)
            self.sweep()

    def sweep(self) -> None:
        """Fail the deliveries and drop the connections whose time is up."""
        self._soon.run(self.core.sweep)
        self._soon.run(self.connections.sweep)

    def _work(self) -> None:
        """Process a slice of the deferred work of the bus, as the daemon does once per turn."""
        if self.core.work():
            self._soon.run(self._work)
        self.connections.flush()

    def stop(self) -> None:
        """Fail pending deliveries and close all connections, as the daemon does at its end."""
        self.core.is_stopping = True
        self._soon.run(lambda: self.core.give_up(Outcome.STOPPING))
        self._soon.run(self.connections.close_all)
