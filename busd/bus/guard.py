"""The guard of a peer whose messages must be looked at one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from busd.bus.access import Rights
from busd.bus.bucket import Bucket
from busd.bus.message import Message
from busd.errors import AccessRefused, RateLimited

if TYPE_CHECKING:
    from busd.bus.peer import RemotePeer

_MAX_REMEMBERED = 1_024


class Guard:
    """Checks the address and the rate of every message; most peers have none."""

    __slots__ = ("_allowed", "_bucket", "_rights")

    def __init__(self, rights: Rights, clock: Callable[[], float]) -> None:
        self._rights = rights
        self._allowed: set[str] = set()
        rate = rights.rate
        self._bucket = Bucket(*rate, clock) if rate is not None else None

    def check(self, message: Message, peer: RemotePeer) -> None:
        """Raise if this message is one too many, or to an address it may not go to."""
        if self._bucket is not None and (wait := self._bucket.take()) > 0:
            rule = f"grant.{self._rights.grants[0].name}.messages_per_second"
            raise RateLimited("too many messages", rule=rule, retrySeconds=round(wait, 3))
        if message.to in self._allowed:
            return
        decision = self._rights.may_send_to(message.to)
        if not decision.allowed:
            peer.bus.log_refusal("message.refused", peer.name, decision.rule, to=message.to)
            raise AccessRefused(decision.reason, rule=decision.rule, to=message.to)
        if len(self._allowed) >= _MAX_REMEMBERED:
            self._allowed.clear()
        self._allowed.add(message.to)
