"""A bus in memory: the real core, with peers without sockets and a simulated clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from busd.bus.access import Grant, Policy
from busd.bus.authenticator import Authenticator
from busd.bus.bus import Bus
from busd.bus.delivery import DeliveryLimits
from busd.bus.loops import LoopLimits
from busd.bus.mail_policy import MailSettings
from busd.bus.mail_store import MailStore
from busd.bus.mailboxes import Mailboxes
from busd.bus.message import Outcome
from busd.bus.methods import methods
from busd.bus.quota import QuotaLimits
from busd.mail.memory import MemoryMailStore
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
        loops: LoopLimits | None = None,
        policy: Policy = "open",
        grants: Iterable[Grant] = (),
        allowed_origins: Iterable[str] = (),
        mail: MailSettings | None = None,
        store: MailStore | None = None,
        clock: FakeClock | None = None,
        wall_clock: FakeClock | None = None,
    ) -> None:
        """Create a bus; it keeps mail if it has settings for it, by default in memory.

        The time of day of mail is `wall_clock`, by default the same as the clock.
        """
        self.clock = clock or FakeClock()
        granted = grants or [Grant(name="everybody", uid=0)]
        authenticator = Authenticator(policy, granted, clock=self.clock)
        self.core = Bus(methods, limits, authenticator, self.clock, quota, loops)
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
        if mail is not None:
            self.store = store or MemoryMailStore(self.run, mail)
            self.mailboxes = Mailboxes(self.core, self.store, mail, wall_clock or self.clock)
            self.core.mailboxes = self.mailboxes
            self.mailboxes.load(lambda: None)

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
        extensions: object = None,
    ) -> ScriptedPeer:
        """Return a peer that has initialized and subscribed; raise CallRefused if it may not."""
        peer = self.connect(client_id, web_socket=web_socket, chunk=chunk)
        peer.initialize(info=info, extensions=extensions).check()
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
        self.run(self.core.sweep)
        self._soon.run(self.connections.sweep)

    def run(self, action: Callable[[], object]) -> None:
        """Run an action of the bus as the daemon does: what it sends is written out after it."""
        self._soon.run(action)
        self._soon.run(self.connections.flush)

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
