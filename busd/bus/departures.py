"""Departures: what a peer that left has registered is undone in slices.

From the moment it leaves a peer gets no message and is no member, and whoever watches knows it. The
rest is queued and worked off in order, a bounded slice per turn of the loop: first its patterns,
then those who wait for its acks. So thousands that leave at once hold nobody up.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import structlog

from busd.bus.message import Outcome
from busd.bus.peer import BUSY_RETRY_SECONDS, Member, RemotePeer

if TYPE_CHECKING:
    from busd.bus.bus import Bus
    from busd.bus.quota import Account

log = structlog.get_logger("busd.bus")

_NOTICE_COST = 8  # a log line, in units of one pattern or one failed ack
_CLOSE_COST = 4
_REMEMBERED_PER_UNIT = 64


class Departure:
    """One peer that left, and how far undoing what it registered has come."""

    __slots__ = ("_bus", "_calls", "_has_stand_in", "_is_announced", "_peer", "_reason")

    def __init__(self, bus: Bus, peer: Member, reason: str) -> None:
        self._bus = bus
        self._peer = peer
        self._reason = reason
        self._calls: deque[Any] = deque(peer.calls.values())  # of deliveries
        peer.calls = {}
        self._is_announced = False
        self._has_stand_in = False

    @property
    def account(self) -> Account:
        return self._peer.account

    @property
    def is_done(self) -> bool:
        return self._is_announced and not self._calls

    def work(self, budget: int) -> int:
        """Process a part within the budget; return what is left of the budget."""
        if not self._is_announced:
            budget = self._remove_patterns(budget)
            if budget <= 0:
                return budget
            self._announce()
            budget -= _NOTICE_COST
        return self._fail_calls(budget)

    def _remove_patterns(self, budget: int) -> int:
        peer, routes = self._peer, self._bus.routes
        removed = routes.remove_some(peer, peer.subscriptions, budget)
        peer.account.add_subscriptions(-removed, 0)
        budget -= removed
        if budget <= 0:
            return budget
        if peer.wildcards:
            routes.forget(peer)
            budget -= routes.remembered_count // _REMEMBERED_PER_UNIT
        peer.account.add_subscriptions(0, -peer.globs)
        peer.wildcards = peer.globs = 0
        del routes.leaving[peer]
        return max(budget, 1)

    def _announce(self) -> None:
        bus, peer = self._bus, self._peer
        self._is_announced = True
        log.info("peer.left", peer=peer.name, connection=peer.connection_id, reason=self._reason)
        # After the watchers: one may stand in for the peer by now, and gets what is sent again.
        self._has_stand_in = bool(self._calls) and bus.has_stand_in(peer.name)

    def _fail_calls(self, budget: int) -> int:
        calls, peer = self._calls, self._peer
        while calls and budget > 0:
            budget -= 1
            delivery = calls.popleft()
            is_covered = self._has_stand_in and delivery.message.to == peer.name
            retry_seconds = BUSY_RETRY_SECONDS if is_covered else None
            delivery.settle_failed(peer, Outcome.LOST, retry_seconds)
        return budget


class Departures:
    """Those that have left, in order, and those whose connection is to be closed."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._queue: deque[Departure] = deque()
        self._ended: deque[RemotePeer] = deque()

    def __bool__(self) -> bool:
        return bool(self._queue or self._ended)

    def add(self, peer: Member, reason: str) -> None:
        self._bus.routes.leaving[peer] = None
        self._queue.append(Departure(self._bus, peer, reason))

    def close_soon(self, peer: RemotePeer) -> None:
        """Close the connection of a peer that sends no more, as soon as it is owed nothing."""
        self._ended.append(peer)

    def work(self, budget: int) -> int:
        """Undo what those who left have registered, first come first served."""
        while self._ended and budget > 0:
            budget -= _CLOSE_COST
            self._ended.popleft().on_flushed_after_end()
        queue = self._queue
        while queue and budget > 0:
            departure = queue[0]
            budget = departure.work(budget)
            # A watcher may have had the queue worked off meanwhile.
            if queue and queue[0] is departure and departure.is_done:
                queue.popleft()
                self._bus.accounts.forget(departure.account)
        return budget
