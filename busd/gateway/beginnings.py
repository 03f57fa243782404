"""Beginnings: in how many conversations a user may begin to talk to an agent.

The first words in a conversation start an agent, which is a process and lives on for some time. All
users share the places for these (`agents.max_workers`), so that nobody may take them all at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from busd.bus.bucket import Bucket
from busd.gateway.refusal import Refusal

if TYPE_CHECKING:
    from busd.gateway.settings import ClientLimits

_FRESH_SECONDS = 600.0  # after words in a conversation: its agent is expected to be there still
_MAX_FRESH = 1_000  # conversations of one user


class Beginnings:
    """Counts the conversations that each user begins; the owner of the gateway is not counted."""

    def __init__(self, limits: ClientLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._users: dict[str, _User] = {}

    def charge(self, user: str, session_id: str) -> None:
        """Charge words in a conversation, unless its agent is there; raise Refusal."""
        if user not in self._users:
            limits = self._limits
            per_second = limits.conversations_per_minute / 60
            self._users[user] = _User(Bucket(per_second, limits.conversations_at_once, self._clock))
        seconds = self._users[user].charge(session_id, self._clock())
        if seconds:
            limit = self._limits.conversations_at_once
            reason = f"{user} has begun {limit} conversations in a short time; try again later"
            detail = "conversations_at_once"
            raise Refusal("limit", reason, retry_seconds=seconds, detail=detail)


class _User:
    """What one user has begun."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._fresh: dict[str, float] = {}  # the time of the last words, the oldest first

    def charge(self, session_id: str, now: float) -> float:
        """Return 0, or the seconds until another conversation may be begun."""
        said_at = self._fresh.pop(session_id, None)
        if said_at is None or now - said_at > _FRESH_SECONDS:
            if seconds := self._bucket.take():
                return seconds
            while len(self._fresh) >= _MAX_FRESH:
                del self._fresh[next(iter(self._fresh))]
        self._fresh[session_id] = now
        return 0.0
