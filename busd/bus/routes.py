"""Routes: which peers a message goes to, by the patterns they subscribed to."""

from __future__ import annotations

import re
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
        self.remembered: dict[str, tuple[Peer, ...]] = {}
        # Peers that have left and whose patterns are still being removed: they get nothing.
        self.leaving: dict[Peer, None] = {}

    def match(self, address: str) -> tuple[Peer, ...]:
        """Return each peer that gets messages to `address`, once; raise MalformedAddress."""
        peers = self.remembered.get(address)
        if peers is None:
            return self._look_up(address)
        return self.without_leaving(peers) if self.leaving else peers

    def without_leaving(self, peers: tuple[Peer, ...]) -> tuple[Peer, ...]:
        """Return these peers but those that have left."""
        return tuple([peer for peer in peers if peer not in self.leaving])

    def _look_up(self, address: str) -> tuple[Peer, ...]:
        check_address(address)
        found = dict(self._exact.get(address, ()))
        if spelled := self._globs.get(address):  # an address with brackets, taken literally
            found.update(spelled[1])
        for length in self._prefix_lengths:
            if (peers := self._prefixes.get(address[:length])) and length <= len(address):
                found.update(peers)
        for expression, peers in self._globs.values():
            if expression.fullmatch(address):
                found.update(peers)
        if len(self.remembered) >= MAX_REMEMBERED:
            self.remembered.clear()
        result = tuple(found)
        if self.leaving:
            result = self.without_leaving(result)
        self.remembered[address] = result
        return result

    def add(self, pattern: str, peer: Peer) -> None:
        """Route what `pattern` matches to `peer`; adding it again changes nothing."""
        check_pattern(pattern)
        if not has_wildcard(pattern):
            self._exact.setdefault(pattern, {})[peer] = None
            self.remembered.pop(pattern, None)
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
            self.remembered.pop(pattern, None)
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
                self.remembered.pop(pattern, None)
            elif prefix := _prefix_of(pattern):
                self._remove_prefix(pattern, prefix[0], peer)
            else:
                self._remove_glob(pattern, peer)
        return removed

    def forget(self, peer: Peer) -> None:
        """Discard the remembered matches that contain `peer`."""
        for address in [each for each, peers in self.remembered.items() if peer in peers]:
            del self.remembered[address]

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
        for address in [each for each in self.remembered if each.startswith(prefix)]:
            del self.remembered[address]

    def _forget_glob(self, pattern: str, expression: re.Pattern[str]) -> None:
        self.remembered.pop(pattern, None)  # an address with brackets, taken literally
        for address in list(filter(expression.fullmatch, self.remembered)):
            del self.remembered[address]


_NO_EXPRESSION = re.compile("(?!)")


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
