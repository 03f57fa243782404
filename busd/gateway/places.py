"""Places: how many connections there may be, in all, of each user, and of strangers."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from busd.errors import QuotaExceeded
from busd.gateway.limits import Budget
from busd.gateway.settings import ClientLimits

_MIB = 1024 * 1024
# What the gateway holds: input that is not complete, and output that is not read.
_STRANGERS_BYTES = 32 * _MIB
_USER_BYTES = 128 * _MIB
_ALL_BYTES = 512 * _MIB


class Guest(Protocol):
    """A connection whose client has not authenticated yet."""

    def give_way(self) -> None:
        """Close the connection: another one gets its place."""


class Place:
    """The place of one connection; `leave` frees it."""

    __slots__ = ("_places", "budget", "user")

    def __init__(self, places: Places, user: str, budget: Budget) -> None:
        self._places = places
        self.user: str | None = user  # "": a stranger; None: it has left
        self.budget = budget

    def become(self, user: str) -> None:
        """Count the connection as a user's; raise QuotaExceeded if that user has too many."""
        self._places.move(self, user)

    def leave(self) -> None:
        self._places.free(self)


class Places:
    """The connections of a gateway.

    Strangers, who have not authenticated yet, share few places. If these are taken, the one who
    came first has to leave: it had the most time. So nobody can keep others out by waiting.
    """

    def __init__(self, limits: ClientLimits) -> None:
        self._limits = limits
        self._everybody = Budget(_ALL_BYTES)
        self._strangers_budget = Budget(_STRANGERS_BYTES, self._everybody)
        self._strangers: dict[Place, Guest] = {}  # in the order in which they came
        self._budgets: dict[str, Budget] = {}  # of the users who are here
        self.counts: Counter[str] = Counter()  # connections by user

    @property
    def taken(self) -> int:
        return self.counts.total()

    @property
    def held_bytes(self) -> int:
        return self._everybody.used

    def take(self, user: str, guest: Guest) -> Place:
        """Return a place for a new connection; raise QuotaExceeded if there is none."""
        if user:
            self._check(user)
        place = Place(self, user, self._budget_of(user))
        self.counts[user] += 1
        if not user:
            self._strangers[place] = guest
            if len(self._strangers) > self._limits.unknown_clients:
                self._send_away_first()
        return place

    def move(self, place: Place, user: str) -> None:
        if place.user in (None, user):
            return
        self._check(user)
        self._drop(place)
        place.user, place.budget = user, self._budget_of(user)
        self.counts[user] += 1

    def free(self, place: Place) -> None:
        if place.user is not None:
            self._drop(place)
            place.user = None

    def _check(self, user: str) -> None:
        mine, everybodys = self._limits.clients_per_user, self._limits.clients
        if self.counts[user] >= mine:
            raise QuotaExceeded(f"{user} has {mine} connections already", limit=mine)
        if self.taken - self.counts[""] >= everybodys:
            raise QuotaExceeded(f"there are {everybodys} connections already", limit=everybodys)

    def _send_away_first(self) -> None:
        place, guest = next(iter(self._strangers.items()))
        self.free(place)
        guest.give_way()

    def _budget_of(self, user: str) -> Budget:
        if not user:
            return self._strangers_budget
        return self._budgets.setdefault(user, Budget(_USER_BYTES, self._everybody))

    def _drop(self, place: Place) -> None:
        user = place.user or ""
        self._strangers.pop(place, None)
        self.counts[user] -= 1
        if not self.counts[user]:
            del self.counts[user]
            self._budgets.pop(user, None)
