"""Routes: which peers a message goes to, by the patterns they subscribed to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from busd.bus.address import check_address, check_pattern, compile_glob, has_wildcard
from busd.errors import Busy, NotSubscribed

if TYPE_CHECKING:
    from busd.bus.peer import Peer

MAX_REMEMBERED = 65_536
MAX_GLOBS = 1_024


class Routes:
    """Exact addresses and prefixes in dicts, the few other globs in a list, answers remembered.

    A remembered answer costs one dict look-up however many subscriptions there are. An exact
    subscription makes only its own address be looked up again, any other all of them.
    """

    def __init__(self) -> None:
        self._exact: dict[str, dict[Peer, None]] = {}
        self._prefixes: dict[str, dict[Peer, None]] = {}
        self._prefix_lengths: dict[int, int] = {}  # length -> how many prefixes have it
        self._globs: dict[str, tuple[re.Pattern[str], dict[Peer, None]]] = {}
        self.remembered: dict[str, tuple[Peer, ...]] = {}

    def match(self, address: str) -> tuple[Peer, ...]:
        """Give each peer that gets messages to `address`, once; raises MalformedAddress."""
        peers = self.remembered.get(address)
        return self._look_up(address) if peers is None else peers

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
        self.remembered[address] = result = tuple(found)
        return result

    def add(self, pattern: str, peer: Peer) -> None:
        """Let `peer` get what `pattern` matches; adding it again changes nothing."""
        check_pattern(pattern)
        if not has_wildcard(pattern):
            self._exact.setdefault(pattern, {})[peer] = None
            self.remembered.pop(pattern, None)
            return
        if prefix := _prefix_of(pattern):
            self._add_prefix(prefix[0], peer)
        else:
            self._add_glob(pattern, peer)
        self.remembered.clear()

    def _add_prefix(self, prefix: str, peer: Peer) -> None:
        if prefix not in self._prefixes:
            self._prefixes[prefix] = {}
            length = len(prefix)
            self._prefix_lengths[length] = self._prefix_lengths.get(length, 0) + 1
        self._prefixes[prefix][peer] = None

    def _add_glob(self, pattern: str, peer: Peer) -> None:
        if pattern not in self._globs:
            if len(self._globs) >= MAX_GLOBS:
                # Each is tried in turn for a new address: more would slow everybody down.
                raise Busy(f"more than {MAX_GLOBS} globs that are not prefixes", limit=MAX_GLOBS)
            self._globs[pattern] = (compile_glob(pattern), {})
        self._globs[pattern][1][peer] = None

    def remove(self, pattern: str, peer: Peer) -> None:
        """Undo `add`; raises NotSubscribed if there is nothing to undo."""
        if not has_wildcard(pattern):
            _take_out(self._exact, pattern, pattern, peer)
            self.remembered.pop(pattern, None)
            return
        if prefix := _prefix_of(pattern):
            self._remove_prefix(pattern, prefix[0], peer)
        else:
            globs = {key: peers for key, (_, peers) in self._globs.items()}
            _take_out(globs, pattern, pattern, peer)
            if pattern not in globs:
                del self._globs[pattern]
        self.remembered.clear()

    def _remove_prefix(self, pattern: str, prefix: str, peer: Peer) -> None:
        _take_out(self._prefixes, prefix, pattern, peer)
        if prefix not in self._prefixes:
            length = len(prefix)
            self._prefix_lengths[length] -= 1
            if not self._prefix_lengths[length]:
                del self._prefix_lengths[length]


def _take_out(table: dict[str, dict[Peer, None]], key: str, pattern: str, peer: Peer) -> None:
    peers = table.get(key, {})
    if peer not in peers:
        raise NotSubscribed(f"not subscribed to {pattern!r}", address=pattern)
    del peers[peer]
    if not peers:
        del table[key]


def _prefix_of(pattern: str) -> tuple[str] | None:
    """Give the prefix of a pattern like `tg:*`, in a tuple because it may be empty."""
    prefix = pattern.removesuffix("*")
    return (prefix,) if prefix != pattern and not has_wildcard(prefix) else None
