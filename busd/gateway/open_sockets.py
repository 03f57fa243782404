"""The TCP connections of the gateway: how many there may be, and how long one may be silent."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Protocol

# Sockets without a complete request. When a gateway comes back, all its clients connect at once,
# and one that is closed for the sake of another only connects again.
_MAX_WAITING = 2048
_HEAD_SECONDS = 10.0
_BODY_SECONDS = 30.0


class ClosedSocket(Protocol):
    """A connection whose client may still read what was sent."""

    def abort(self) -> None:
        """Close it at once."""


class OpenSocket(ClosedSocket, Protocol):
    """A connection that may be waiting for a request."""

    def expire(self) -> None:
        """Close it, as nothing has come in time; or wait again."""


class OpenSockets:
    """The sockets that are open, those without a complete request among them.

    Whoever connects and says nothing, or says it slowly, takes one of few places, and the one who
    came first has to leave when they are taken. So nobody can keep others out by waiting. Nor by
    being slow to leave: if there are too many sockets, those that are closed already are aborted.
    """

    def __init__(
        self,
        limit: int,
        clock: Callable[[], float] = time.monotonic,
        max_waiting: int = _MAX_WAITING,
    ) -> None:
        self.limit = limit
        self._clock = clock
        self._max_waiting = max_waiting
        self._waiting: dict[OpenSocket, float] = {}  # deadlines, in the order in which they came
        self._leaving: dict[ClosedSocket, None] = {}  # in the order in which they were closed
        self.count = 0

    @property
    def awaited(self) -> Collection[OpenSocket]:
        """The sockets that something is awaited from, in the order in which they came."""
        return self._waiting.keys()

    def add(self, sock: OpenSocket) -> bool:
        """Count a new socket; return False if there is no room for it."""
        if self.count >= self.limit and not self._abort_first():
            return False
        self.count += 1
        self.await_head(sock)
        return True

    def remove(self, sock: OpenSocket) -> None:
        self.satisfy(sock)
        self.drop(sock)

    def drop(self, sock: ClosedSocket) -> None:
        """Note that a socket is gone from which nothing was awaited."""
        self.count -= 1
        self._leaving.pop(sock, None)

    def leave(self, sock: ClosedSocket) -> None:
        """Note that a socket is closed as soon as its client has read what was sent."""
        self._leaving[sock] = None

    def _abort_first(self) -> bool:
        """Abort the socket that was closed first; return False if none was."""
        first = next(iter(self._leaving), None)
        if first is None:
            return False
        del self._leaving[first]
        first.abort()
        return True

    def await_head(self, sock: OpenSocket) -> None:
        """Note that a request has to begin and its head to end soon."""
        self._await(sock, _HEAD_SECONDS)

    def await_body(self, sock: OpenSocket) -> None:
        """Note that the body of a request has to end soon."""
        self._await(sock, _BODY_SECONDS)

    def satisfy(self, sock: OpenSocket) -> None:
        """Note that nothing is awaited from this socket."""
        self._waiting.pop(sock, None)

    def sweep(self) -> None:
        """Close the sockets that have waited for too long."""
        now = self._clock()
        for sock in [sock for sock, deadline in self._waiting.items() if deadline <= now]:
            del self._waiting[sock]
            sock.expire()

    def _await(self, sock: OpenSocket, seconds: float) -> None:
        self._waiting.pop(sock, None)
        self._waiting[sock] = self._clock() + seconds
        if len(self._waiting) > self._max_waiting:
            first = next(iter(self._waiting))
            del self._waiting[first]
            first.abort()
