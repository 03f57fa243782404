"""Quotas: how much of the bus one identity may use, counted as it is used and given back.

An identity is a uid, a token or a certificate; all its connections share one account. Connections
that nothing is known of share the account of the unknown, which has a fraction of the limits.

Messages that wait for acks are counted by allowances: a sender is granted a number of them by its
account, in blocks, and a message on its way changes one number, `Allowance.left`. An account whose
limit is reached takes back what its senders have left before it refuses anything.
"""

from __future__ import annotations

from collections import deque
from typing import Annotated, Literal

import msgspec

from busd.bus.access import Identity
from busd.errors import QuotaExceeded
from busd.quantities import Bytes, Count, Share, about

_MIB = 1024 * 1024
# What a thing takes of our memory, about: measured with `tracemalloc`, rounded up.
_CONNECTION_BYTES = 6_144
_SUBSCRIPTION_BYTES = 512
_UNANSWERED_BYTES = 1_024
_BLOCK = 16  # messages that an allowance grows by: 64 in flight ask for more once or twice
_SENDERS_PER_GRANT = 32  # looked at when an account takes back what is left
UNLIMITED = 1 << 60
UNKNOWN = "unknown"

Quota = Literal[
    "connections", "subscriptions", "globs", "unread_bytes", "fan_out", "unanswered", "memory"
]


class QuotaLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much one identity may use with all its connections together."""

    connections: Annotated[Count, about("Connections per identity.")] = 16_384
    subscriptions: Annotated[Count, about("Subscriptions per identity.")] = 262_144
    globs: Annotated[
        Count, about("Subscriptions per identity that are neither addresses nor prefixes.")
    ] = 512
    unread_bytes: Annotated[Bytes, about("Bytes that the peers of one identity have not read.")] = (
        256 * _MIB
    )
    unanswered: Annotated[
        Count, about("Messages from one identity that wait for acks, one per addressee.")
    ] = 131_072
    memory_bytes: Annotated[Bytes, about("Memory held for one identity, estimated.")] = 512 * _MIB
    unknown_share: Annotated[
        Share, about("Share of each quota that all unknown connections have together.")
    ] = 0.25


class Allowance:
    """How many messages of one sender may wait for acks, and how many more that are.

    `granted - left` of them wait. It outlives its sender while acks are missing.
    """

    __slots__ = ("account", "granted", "is_closed", "left", "sender", "unasked")

    def __init__(self, account: Account, granted: int = 0, sender: str = "") -> None:
        self.account = account
        self.sender = sender  # its name, once it has one
        self.granted = self.left = granted
        self.is_closed = False  # its sender is gone; what it said before may still be worked off
        self.unasked = 0  # of those that wait: notifications, whose acks nobody is told

    @property
    def waiting(self) -> int:
        """How many messages wait for acks, one per addressee."""
        return self.granted - self.left

    @property
    def owed(self) -> int:
        """How many of these acks the sender is told."""
        return self.granted - self.left - self.unasked


class Account:
    """What one identity uses now."""

    __slots__ = (
        "_allowances",
        "_departed",
        "_grants",
        "connections",
        "globs",
        "granted",
        "held_bytes",
        "info_bytes",
        "limits",
        "name",
        "subscriptions",
        "unread_bytes",
    )

    def __init__(self, name: str, limits: QuotaLimits | None) -> None:
        self.name = name
        self.connections = 0
        self.subscriptions = 0
        self.globs = 0
        self.held_bytes = 0  # of frames whose end has not come yet
        self.info_bytes = 0
        self.unread_bytes = 0
        self.granted = 0  # to all allowances together
        self._allowances: dict[Allowance, None] = {}  # of senders that are here
        self._departed: deque[Allowance] = deque()  # of those that are not, with acks missing
        self._grants = 0  # asked for since the last time that all allowances were looked at
        self.limits: QuotaLimits | None = limits

    def change(self, limits: QuotaLimits) -> None:
        """Apply new limits to what is used from now on."""
        self.limits = limits

    @property
    def unanswered(self) -> int:
        """How many messages of this identity wait for acks."""
        return sum(each.waiting for each in (*self._allowances, *self._departed))

    @property
    def memory_bytes(self) -> int:
        """About what is held in memory for this identity."""
        return self._fixed_bytes + self.unanswered * _UNANSWERED_BYTES

    @property
    def _fixed_bytes(self) -> int:
        return (
            self.connections * _CONNECTION_BYTES
            + self.subscriptions * _SUBSCRIPTION_BYTES
            + self.held_bytes
            + self.info_bytes
            + self.unread_bytes
        )

    @property
    def is_empty(self) -> bool:
        return self.memory_bytes == 0

    # Messages that wait for acks

    def grant(self, allowance: Allowance, copies: int) -> int:
        """Allow a sender so many more waiting messages; return what is left to it after them.

        Raise QuotaExceeded if that is too many.
        """
        assert self.limits is not None
        self._grants += 1
        room = self.limits.memory_bytes - self._fixed_bytes
        limit = min(self.limits.unanswered, room // _UNANSWERED_BYTES)
        missing = copies - allowance.left
        if self.granted + missing + _BLOCK <= limit * 3 // 4:
            missing += _BLOCK  # but none of the last quarter, of which nothing shall be unused
        elif self.granted + missing > limit:
            self._take_back()
            missing = copies - allowance.left
            if self.granted + missing > limit:
                raise self._refuse_message(copies)
        if not allowance.granted:  # else it is listed
            if allowance.is_closed:
                self._departed.append(allowance)
            else:
                self._allowances[allowance] = None
        self.granted += missing
        allowance.granted += missing
        allowance.left += missing
        return allowance.left - copies

    def _take_back(self) -> None:
        """Reclaim what is left of all allowances, unless that was done a moment ago.

        Looking at a few for each grant that was asked for keeps the cost of a grant bounded,
        however many senders the identity has.
        """
        if self._grants * _SENDERS_PER_GRANT < len(self._allowances) + len(self._departed):
            return
        self._grants = 0
        for allowance in list(self._allowances):
            if not self._shrink(allowance):
                del self._allowances[allowance]
        self._departed = deque(filter(self._shrink, self._departed))

    def _shrink(self, allowance: Allowance) -> int:
        """Reclaim what is left of an allowance; return how many messages still wait."""
        self.granted -= allowance.left
        allowance.granted -= allowance.left
        allowance.left = 0
        return allowance.granted

    def close_allowance(self, allowance: Allowance) -> None:
        """Reclaim the allowance of a sender that is gone; what still waits stays counted."""
        allowance.is_closed = True
        self._allowances.pop(allowance, None)
        if self._shrink(allowance):
            self._departed.append(allowance)
        for _ in range(min(2, len(self._departed))):  # so that no more remain than still wait
            if self._shrink(departed := self._departed.popleft()):
                self._departed.append(departed)

    # Raise QuotaExceeded for what is too much

    def check_connection(self) -> None:
        """Raise QuotaExceeded if there may not be another connection."""
        if self.limits is not None:
            self._check("connections", self.connections + 1, self.limits.connections)
            self.check_memory()

    def check_subscription(self, *, is_glob: bool) -> None:
        """Raise QuotaExceeded if there may not be another subscription."""
        if self.limits is not None:
            self._check("subscriptions", self.subscriptions + 1, self.limits.subscriptions)
            self._check("globs", self.globs + is_glob, self.limits.globs)
            self.check_memory()

    def check_memory(self) -> None:
        """Raise QuotaExceeded if too much is held already."""
        if self.limits is not None and self._uses_too_much(self.limits):
            raise self._refusal("memory", self.limits.memory_bytes)

    def _uses_too_much(self, limits: QuotaLimits) -> bool:
        """Return whether too much memory is held; what is granted and unused is not."""
        if self._fixed_bytes + self.granted * _UNANSWERED_BYTES > limits.memory_bytes:
            self._grants += 1
            self._take_back()
        return self._fixed_bytes + self.granted * _UNANSWERED_BYTES > limits.memory_bytes

    def check_fan_out(self, size: int) -> None:
        """Raise QuotaExceeded if the copies of one message are too large together.

        They are all on their way before anybody can tell that they are not read. Half of what may
        be unread leaves room for what was unread before.
        """
        if self.limits is not None:
            self._check("fan_out", size, self.limits.unread_bytes // 2)

    def _refuse_message(self, copies: int) -> QuotaExceeded:
        assert self.limits is not None
        if self.granted + copies > self.limits.unanswered:
            return self._refusal("unanswered", self.limits.unanswered)
        return self._refusal("memory", self.limits.memory_bytes)

    def _check(self, quota: Quota, used: int, limit: int) -> None:
        if used > limit:
            raise self._refusal(quota, limit)

    def _refusal(self, quota: Quota, limit: int) -> QuotaExceeded:
        setting = _SETTINGS.get(quota, quota)
        reason = f"{self.name} may use {limit} {_WORDS[quota]} (quota.{setting}); free some first"
        return QuotaExceeded(reason, rule=f"quota.{quota}", limit=limit, retrySeconds=1)

    # Counting

    def add_connection(self, count: int, info_bytes: int = 0) -> None:
        self.connections += count
        self.info_bytes += info_bytes

    def add_subscriptions(self, count: int, globs: int) -> None:
        self.subscriptions += count
        self.globs += globs

    def add_unread(self, size: int) -> bool:
        """Count bytes that a connection has not read; return whether they are too many now."""
        self.unread_bytes += size
        limits = self.limits
        return limits is not None and self.unread_bytes > limits.unread_bytes

    def add_held(self, size: int) -> bool:
        """Count bytes of unfinished frames; return whether too much memory is used now."""
        self.held_bytes += size
        return self.limits is not None and self._uses_too_much(self.limits)


_SETTINGS: dict[Quota, str] = {"memory": "memory_bytes", "fan_out": "half of unread_bytes"}
_WORDS: dict[Quota, str] = {
    "connections": "connections",
    "subscriptions": "subscriptions",
    "globs": "globs that are not prefixes",
    "unread_bytes": "bytes that are not read",
    "fan_out": "bytes for all copies of one message",
    "unanswered": "messages that wait for acks",
    "memory": "bytes of memory",
}


class Accounts:
    """One account for each identity that is here, and one for all that are unknown."""

    def __init__(self, limits: QuotaLimits) -> None:
        self.limits = limits
        self.unknown = Account("all unknown connections together", share_of(limits))
        self.by_name: dict[str, Account] = {}

    def find(self, identity: Identity) -> Account:
        """Return the account of an identity; made anew if nobody of it is here."""
        name = account_name(identity)
        if name == UNKNOWN:
            return self.unknown
        account = self.by_name.get(name)
        if account is None:
            account = self.by_name[name] = Account(name, self.limits)
        return account

    def forget(self, account: Account) -> None:
        """Drop an account that nobody uses any more."""
        if account.is_empty:
            self.by_name.pop(account.name, None)

    def change(self, limits: QuotaLimits) -> None:
        """Apply new limits, also to those who are here."""
        self.limits = limits
        self.unknown.change(share_of(limits))
        for account in self.by_name.values():
            account.change(limits)


def account_name(identity: Identity) -> str:
    """Return what an identity is counted under: the most specific fact that is proven."""
    if identity.token:
        return f"token {identity.token}"
    if identity.certificate:
        return f"certificate {identity.certificate}"
    return UNKNOWN if identity.uid is None else f"uid {identity.uid}"


def share_of(limits: QuotaLimits) -> QuotaLimits:
    """Return the limits of all unknown connections together."""
    share = limits.unknown_share
    return QuotaLimits(
        connections=max(1, int(limits.connections * share)),
        subscriptions=max(1, int(limits.subscriptions * share)),
        globs=max(1, int(limits.globs * share)),
        unread_bytes=max(1, int(limits.unread_bytes * share)),
        unanswered=max(1, int(limits.unanswered * share)),
        memory_bytes=max(1, int(limits.memory_bytes * share)),
        unknown_share=share,
    )
