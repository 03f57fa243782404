"""All clients of a gateway: who is connected, and what is due for them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup

from busd.gateway.client import Client
from busd.gateway.dialect import Hello
from busd.gateway.hub import Hub
from busd.gateway.identity import Denied, Identities, Identity
from busd.gateway.links import Links
from busd.gateway.places import Places
from busd.gateway.settings import GatewayTable
from busd.vocabulary.payload import now

_SWEEP_SECONDS = 0.5
_TOKEN_CHECK_SECONDS = 5.0
_PINGS_PER_SWEEP = 1_000
RESTARTING = 1012


class Connection(Protocol):
    """A connection of clients. It is pinged to find out whether it is lost."""

    def ping(self) -> None:
        """Send a ping, or close the connection if the last ones were not answered."""

    def close(self, code: int, reason: str) -> None:
        """Close the connection; the client gets what was sent before."""


class Awaited(Protocol):
    """A client that has to authenticate, or a connection that has to become one."""

    def dismiss(self, rule: str, reason: str) -> None:
        """Close the connection, and say why."""


class Clients:
    """The clients of one gateway."""

    def __init__(
        self,
        hub: Hub,
        table: GatewayTable,
        identities: Identities,
        links: Links,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.hub = hub
        self.table = table
        self.identities = identities
        self.links = links
        self.places = Places(table.limits)
        self.is_draining = False
        self._clock = clock
        self._tasks: TaskGroup | None = None
        self._open: dict[Client, None] = {}
        self._awaited: dict[Awaited, float] = {}  # deadlines, in order
        self._lines: dict[Connection, float] = {}  # when the next ping is due, in order
        self._check_tokens_at = clock()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Do what is due from time to time."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._sweep_often)
            yield
            tasks.cancel_scope.cancel()

    async def _sweep_often(self) -> None:
        while True:
            await anyio.sleep(_SWEEP_SECONDS)
            self.sweep()

    def __len__(self) -> int:
        return len(self._open)

    def count(self) -> Counter[str]:
        """Return how many clients of each dialect there are."""
        return Counter(client.prefix for client in self._open)

    def describe(self) -> dict[str, object]:
        """Return what the owner may know of the connections."""
        return {
            "clients": dict(self.count()),
            "connections": self.places.taken,
            "strangers": self.places.counts[""],
            "held_bytes": self.places.held_bytes,
        }

    def add(self, client: Client) -> None:
        self._open[client] = None
        if not client.identity.user:
            self.expect(client)

    def remove(self, client: Client) -> None:
        self._open.pop(client, None)
        self.settle(client)

    def end_soon(self, client: Client) -> None:
        """End a client's session where nobody can wait for it."""
        assert self._tasks is not None
        self._tasks.start_soon(client.end)

    def expect(self, awaited: Awaited) -> None:
        """Dismiss a client unless it has authenticated soon."""
        self._awaited[awaited] = self._clock() + self.table.limits.authenticate_seconds

    def settle(self, awaited: Awaited) -> None:
        """Note that it has, or that it is gone."""
        self._awaited.pop(awaited, None)

    def check_open(self) -> None:
        """Raise Denied if nobody is let in any more."""
        if self.is_draining:
            raise Denied(503, "The gateway is stopping.\n")

    def watch(self, line: Connection) -> None:
        """Ping a connection from now on."""
        self._lines[line] = self._clock() + self.table.limits.ping_seconds

    def forget(self, line: Connection) -> None:
        self._lines.pop(line, None)

    def sweep(self) -> None:
        """Do what is due: pings, deadlines, revoked tokens."""
        now = self._clock()
        self._ping(now)
        for awaited in [each for each, deadline in self._awaited.items() if deadline <= now]:
            del self._awaited[awaited]
            seconds = self.table.limits.authenticate_seconds
            awaited.dismiss("unauthenticated", f"no token within {seconds:g} seconds")
        if self._check_tokens_at <= now:
            self._check_tokens_at = now + _TOKEN_CHECK_SECONDS
            self._check_tokens()

    def _ping(self, now: float) -> None:
        due: list[Connection] = []
        for line, at in self._lines.items():
            if at > now or len(due) >= _PINGS_PER_SWEEP:
                break
            due.append(line)
        for line in due:
            del self._lines[line]
            self.watch(line)
            line.ping()

    def _check_tokens(self) -> None:
        """Dismiss those whose token was revoked."""
        shown = {client.identity.token_sha256 for client in self._open} - {""}
        valid = self.identities.valid_tokens() if shown else None
        if valid is None or shown <= valid:
            return
        for client in list(self._open):
            if client.identity.token_sha256 not in {"", *valid}:
                client.dismiss("authentication", "the token was revoked")

    async def drain(self, seconds: float, must_hurry: anyio.Event) -> None:
        """Read nothing more, and wait until what was begun is done."""
        self.is_draining = True
        with anyio.move_on_after(seconds):
            while any(client.is_busy for client in self._open) and not must_hurry.is_set():
                await anyio.sleep(0.02)

    def close_all(self) -> None:
        """Close all connections: the gateway stops, and clients may come back soon."""
        for line in list(self._lines):
            line.close(RESTARTING, "the gateway restarts")

    def make_hello(
        self,
        identity: Identity,
        *,
        base: str,
        query: dict[str, str],
        path: str,
        room: str = "",
        namespace: str = "",
        socket_id: str = "",
    ) -> Hello:
        """Return what a dialect is told of its client; `base` begins the links that it gets."""

        def sign(url: str) -> str:
            link = self.links.sign(url)
            return f"{base}{link}" if link else ""

        return Hello(
            path=path,
            room=room,
            query=query,
            namespace=namespace,
            user=identity.user,
            is_owner=identity.is_owner,
            socket_id=socket_id,
            new_id=lambda: str(uuid4()),
            now=now,
            base=base,
            sign=sign,
        )
