"""A client of the gateway: a dialect with its session, whatever carries the frames."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

import anyio
import structlog

from busd.errors import QuotaExceeded
from busd.gateway.dialect import Dialect, Hello
from busd.gateway.effects import Frame
from busd.gateway.hub import KnownUser, Output
from busd.gateway.identity import Denied, Identity
from busd.gateway.limits import Allowance, cost_of

if TYPE_CHECKING:
    from busd.gateway.clients import Clients

log = structlog.get_logger("busd.gateway")

POLICY_VIOLATION, TRY_AGAIN_LATER = 1008, 1013  # close codes
_REFUSAL_PAUSE_SECONDS = 1.0  # a client that floods is not flooded with refusals


class Line(Protocol):
    """What carries the frames of a client: a WebSocket, or a namespace of Socket.IO."""

    def send(self, output: Output) -> None:
        """Send what the dialect has put out; never wait, never raise."""

    def admit(self, identity: Identity) -> None:
        """Let the client use what its user may; raise QuotaExceeded."""

    def close(self, code: int, reason: str) -> None:
        """Close the connection after what was sent."""


class Client:
    """One client, from its connection to its end."""

    def __init__(
        self, clients: Clients, line: Line, dialect: type[Dialect], hello: Hello, identity: Identity
    ) -> None:
        self.identity = identity
        self._clients = clients
        self._line = line
        self._dialect = dialect(hello)
        limits = clients.table.limits
        self._allowance = Allowance(limits.frames_per_second, limits.frames_at_once)
        self._refused_at = -float("inf")
        self.is_busy = False
        self.session = clients.hub.connect(
            self._dialect,
            send=line.send,
            user=identity.user,
            is_owner=identity.is_owner,
            find_user=self._find_user,
        )
        clients.add(self)

    @property
    def prefix(self) -> str:
        return self._dialect.prefix

    @property
    def first_frame_seconds(self) -> float:
        return self._dialect.first_frame_seconds

    async def open(self) -> None:
        """Open the dialect."""
        await self.session.open()

    async def take(self, frame: Frame, size: int) -> None:
        """Pass on a frame of so many bytes; return when the next one may come."""
        if await self.admit(size):
            await self.pass_on(frame)

    async def admit(self, size: int) -> bool:
        """Charge a frame of so many bytes, and wait for its turn; return whether to pass it on."""
        await self._pay(size)
        if self._clients.is_draining:
            return False
        most = self._dialect.max_frame_bytes
        if size > most:
            self.refuse("limit", f"a frame of {size} bytes; {most} at most")
        elif self._allowance.is_flooded:
            self._refuse_flood(self._clients.table.limits.frames_per_second)
        else:
            return True
        return False

    async def pass_on(self, frame: Frame) -> None:
        """Pass on a frame that was admitted; return when what it asks for is done."""
        self.is_busy = True
        try:
            await self.session.receive(frame)
        finally:
            self.is_busy = False

    async def decline(self, rule: str, reason: str) -> None:
        """Refuse a frame that no dialect reads; return when the next one may come."""
        await self._pay(0)
        if not self._allowance.is_flooded:
            self.refuse(rule, reason)

    async def _pay(self, size: int) -> None:
        cost = cost_of(size, is_strangers=not self.identity.user)
        if seconds := self._allowance.charge(cost):
            await anyio.sleep(seconds)

    def _refuse_flood(self, rate: float) -> None:
        now = time.monotonic()
        if now - self._refused_at >= _REFUSAL_PAUSE_SECONDS:
            self._refused_at = now
            self.refuse("limit", f"more than {rate:g} frames per second; some were not read")

    def refuse(self, rule: str, reason: str) -> None:
        """Show the client why a frame was not passed on, or why the connection is closed."""
        self.session.refuse(rule, reason)

    def close(self, code: int, reason: str) -> None:
        """Close the connection after what was sent."""
        self._line.close(code, reason)

    def dismiss(self, rule: str, reason: str, code: int = POLICY_VIOLATION) -> None:
        """Close the connection, and say why."""
        log.info("client.dismissed", dialect=self.prefix, user=self.identity.user, reason=reason)
        self.refuse(rule, reason)
        self._line.close(code, reason)

    async def end(self) -> None:
        """End the session: the connection is closed."""
        self._clients.remove(self)
        with anyio.CancelScope(shield=True):
            await self.session.close()

    def _find_user(self, token: str) -> KnownUser | None:
        """Return whose token it is, for a dialect."""
        try:
            identity = self._clients.identities.of_token(token)
            self._line.admit(identity)
        except Denied:
            return None
        except QuotaExceeded as full:
            self.dismiss("limit", full.message, TRY_AGAIN_LATER)
            return None
        self.identity = identity
        self._clients.settle(self)
        return KnownUser(identity.user, identity.is_owner)
