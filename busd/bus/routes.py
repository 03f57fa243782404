"""Routes: which peers a message goes to, by the patterns they subscribed to."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from busd.bus.address import check_address, check_pattern, compile_glob, has_wildcard
from busd.errors import Busy, NotSubscribed

if TYPE_CHECKING:
    from busd.bus.peer import Peer

MAX_REMEMBERED = 16_384
MAX_GLOBS = 1_024


class Routes:
    """Exact addresses and prefixes in dicts, the few other globs in a list, answers remembered.

    A remembered answer costs one dict look-up however many subscriptions there are. A subscription
    that comes or goes makes only the addresses that it matches be looked up again: whoever changes
    a pattern pays for finding them, and nobody else notices.
    """

    def __init__(self) -> None:
        self._exact: dict[str, dict[Peer, None]] = {}
        self._prefixes: dict[str, dict[Peer, None]] = {}
        self._prefix_lengths: dict[int, int] = {}  # length -> how many prefixes have it
        self._globs: dict[str, tuple[re.Pattern[str], dict[Peer, None]]] = {}
        # Only addresses that some peer answers for, and whose messages may go to it directly.
        self.remembered: dict[str, tuple[Peer, ...]] = {}
        self._unanswered: dict[str, tuple[Peer, ...]] = {}  # all others: observers, or nobody
        self.diverted: set[str] = set()  # addresses whose messages go behind earlier ones
        # Whether somebody who is not here is known to answer for an address first-hand.
        self.is_expected: Callable[[str], bool] = lambda address: False
        # Peers that have left and whose patterns are still being removed: they get nothing.
        self.leaving: dict[Peer, None] = {}

    def match(self, address: str) -> tuple[Peer, ...]:
        """Return each peer that gets messages to `address`, once; raise MalformedAddress."""
        peers = self.remembered.get(address)
        if peers is None:
            peers = self._unanswered.get(address)
        if peers is None:
            return self._look_up(address)
        return self.without_leaving(peers) if self.leaving else peers

    def without_leaving(self, peers: tuple[Peer, ...]) -> tuple[Peer, ...]:
        """Return these peers but those that have left."""
        return tuple([peer for peer in peers if peer not in self.leaving])

    def _look_up(self, address: str) -> tuple[Peer, ...]:
        check_address(address)
        first, second, observing = self._find(address)
        is_direct = address not in self.diverted and bool(
            first or (second and not self.is_expected(address))
        )
        table = self.remembered if is_direct else self._unanswered
        if len(table) >= MAX_REMEMBERED:
            table.clear()
        table[address] = result = tuple(first | second | observing)
        return result

    def answering(self, address: str) -> tuple[Peer, ...]:
        """Return the peers that answer for an address: all but those that only observe it.

        Those that answer first-hand, if there are any. Else, unless somebody is known to, those
        that have the address by a pattern for the addresses of others.
        """
        first, second, _ = self._find(address)
        if first:
            return tuple(first)
        return () if second and self.is_expected(address) else tuple(second)

    def _find(self, address: str) -> tuple[dict[Peer, None], dict[Peer, None], dict[Peer, None]]:
        """Return who answers for an address first-hand, who else does, and who only observes it."""
        first = dict(self._exact.get(address, ()))
        second: dict[Peer, None] = {}
        observing: dict[Peer, None] = {}
        if spelled := self._globs.get(address):  # an address with brackets, taken literally
            first.update(spelled[1])
        for length in self._prefix_lengths:
            if (peers := self._prefixes.get(address[:length])) and length <= len(address):
                if not length:
                    observing.update(peers)
                for peer in peers if length else ():
                    (first if is_first_hand(address[:length], peer.name) else second)[peer] = None
        for pattern, (expression, peers) in self._globs.items():
            if expression.fullmatch(address):
                if is_observing(pattern):
                    observing.update(peers)
                for peer in () if is_observing(pattern) else peers:
                    (first if is_first_hand(pattern, peer.name) else second)[peer] = None
        for peer in self.leaving:
            for found in (first, second, observing):
                found.pop(peer, None)
        return first, second, observing

    def divert(self, address: str, *, is_diverted: bool) -> None:
        """Have messages to an address go behind earlier ones, or directly again."""
        if is_diverted:
            self.diverted.add(address)
        else:
            self.diverted.discard(address)
        self._forget_address(address)

    def _forget_address(self, address: str) -> None:
        self.remembered.pop(address, None)
        self._unanswered.pop(address, None)

    def add(self, pattern: str, peer: Peer) -> None:
        """Route what `pattern` matches to `peer`; adding it again changes nothing."""
        check_pattern(pattern)
        if not has_wildcard(pattern):
            self._exact.setdefault(pattern, {})[peer] = None
            self._forget_address(pattern)
        elif prefix := _prefix_of(pattern):
            self._add_prefix(prefix[0], peer)
        else:
            self._add_glob(pattern, peer)

    def _add_prefix(self, prefix: str, peer: Peer) -> None:
        peers = self._prefixes.get(prefix)
        if peers is None:
            peers = self._prefixes[prefix] = {}
            length = len(prefix)
            self._prefix_lengths[length] = self._prefix_lengths.get(length, 0) + 1
        if peer not in peers:
            peers[peer] = None
            self._forget_prefix(prefix)

    def _add_glob(self, pattern: str, peer: Peer) -> None:
        if pattern not in self._globs:
            if len(self._globs) >= MAX_GLOBS:
                # Each is tried in turn for a new address: more would slow everybody down.
                raise Busy(f"more than {MAX_GLOBS} globs that are not prefixes", limit=MAX_GLOBS)
            self._globs[pattern] = (compile_glob(pattern), {})
        expression, peers = self._globs[pattern]
        if peer not in peers:
            peers[peer] = None
            self._forget_glob(pattern, expression)

    def remove(self, pattern: str, peer: Peer) -> None:
        """Undo `add`; raise NotSubscribed if there is nothing to undo."""
        if not has_wildcard(pattern):
            _take_out(self._exact, pattern, pattern, peer)
            self._forget_address(pattern)
        elif prefix := _prefix_of(pattern):
            self._remove_prefix(pattern, prefix[0], peer)
            self._forget_prefix(prefix[0])
        else:
            self._forget_glob(pattern, self._remove_glob(pattern, peer))

    def remove_some(self, peer: Peer, patterns: set[str], count: int) -> int:
        """Remove up to `count` patterns of a peer that is leaving; return how many were removed.

        What is remembered of a wildcard is left to `forget`: once for the peer, not per pattern.
        """
        removed = 0
        while patterns and removed < count:
            pattern = patterns.pop()
            removed += 1
            if not has_wildcard(pattern):
                _take_out(self._exact, pattern, pattern, peer)
                self._forget_address(pattern)
            elif prefix := _prefix_of(pattern):
                self._remove_prefix(pattern, prefix[0], peer)
            else:
                self._remove_glob(pattern, peer)
        return removed

    @property
    def remembered_count(self) -> int:
        """How many addresses are remembered: what `forget` goes through."""
        return len(self.remembered) + len(self._unanswered)

    def forget(self, peer: Peer) -> None:
        """Discard the remembered matches that contain `peer`."""
        for table in (self.remembered, self._unanswered):
            for address in [each for each, peers in table.items() if peer in peers]:
                del table[address]

    def _remove_prefix(self, pattern: str, prefix: str, peer: Peer) -> None:
        _take_out(self._prefixes, prefix, pattern, peer)
        if prefix not in self._prefixes:
            length = len(prefix)
            self._prefix_lengths[length] -= 1
            if not self._prefix_lengths[length]:
                del self._prefix_lengths[length]

    def _remove_glob(self, pattern: str, peer: Peer) -> re.Pattern[str]:
        expression, peers = self._globs.get(pattern, (_NO_EXPRESSION, {}))
        if peer not in peers:
            raise NotSubscribed(f"not subscribed to {pattern!r}", address=pattern)
        del peers[peer]
        if not peers:
            del self._globs[pattern]
        return expression

    def _forget_prefix(self, prefix: str) -> None:
        for table in (self.remembered, self._unanswered):
            for address in [each for each in table if each.startswith(prefix)]:
                del table[address]

    def _forget_glob(self, pattern: str, expression: re.Pattern[str]) -> None:
        self._forget_address(pattern)  # an address with brackets, taken literally
        for table in (self.remembered, self._unanswered):
            for address in list(filter(expression.fullmatch, table)):
                del table[address]


_NO_EXPRESSION = re.compile("(?!)")


def is_first_hand(pattern: str, name: str) -> bool:
    """Return whether a peer answers for what a pattern with a wildcard matches first-hand.

    A name with a prefix (`agent:a`) speaks for itself: only patterns that begin with the name are
    its own. A name without one (`telegram-bridge`) speaks for others, and a plugin for its users.
    Existing agents subscribe to `tg:*` and ack whatever comes, though a bridge answers for it.
    """
    return ":" not in name or name.startswith("plugin:") or pattern.startswith(name)


def is_observing(pattern: str) -> bool:
    """Return whether a pattern begins with a wildcard: its peer observes and answers for nobody."""
    return has_wildcard(pattern) and pattern[0] in "*?["


def is_glob(pattern: str) -> bool:
    """Return whether a pattern is neither an address nor a prefix: it is tried, not looked up."""
    return has_wildcard(pattern) and _prefix_of(pattern) is None


def _take_out(table: dict[str, dict[Peer, None]], key: str, pattern: str, peer: Peer) -> None:
    peers = table.get(key, {})
    if peer not in peers:
        raise NotSubscribed(f"not subscribed to {pattern!r}", address=pattern)
    del peers[peer]
    if not peers:
        del table[key]


def _prefix_of(pattern: str) -> tuple[str] | None:
    """Return the prefix of a pattern like `tg:*`, in a tuple because it may be empty."""
    prefix = pattern.removesuffix("*")
    return (prefix,) if prefix != pattern and not has_wildcard(prefix) else None
