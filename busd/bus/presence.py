"""Presence: which names remote peers have taken, and who is notified when they come and go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from busd.bus.peer import RemotePeer


class Watcher(Protocol):
    """Whoever is notified when remote peers come and go."""

    def on_peer_joined(self, name: str) -> None:
        """Handle each connection that takes a name."""

    def on_peer_left(self, name: str) -> None:
        """Handle that the last connection of a name is no more."""


class Presence:
    """The remote peers by name.

    Watchers are notified at once: one may stand in for the peer, and what is sent to its name from
    now on must find it.
    """

    def __init__(self) -> None:
        self.watchers: list[Watcher] = []
        self._by_name: dict[str, dict[RemotePeer, None]] = {}

    def add(self, peer: RemotePeer) -> None:
        self._by_name.setdefault(peer.name, {})[peer] = None
        for watcher in list(self.watchers):
            watcher.on_peer_joined(peer.name)

    def remove(self, peer: RemotePeer) -> None:
        """Remove a peer; notify the watchers if it was the last of its name."""
        same = self._by_name[peer.name]
        del same[peer]
        if same:
            return
        del self._by_name[peer.name]
        for watcher in list(self.watchers):
            watcher.on_peer_left(peer.name)

    def find(self, name: str) -> list[RemotePeer]:
        """Return the remote peers of that name."""
        return list(self._by_name.get(name, ()))

    def heard(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return how much the peers of these names have said so far, and how many acks they owe.

        The first number means nothing but that it grows: who looks twice knows who was quiet.
        """
        found: dict[str, tuple[int, int]] = {}
        for name in names:
            if peers := self._by_name.get(name):
                said = sum(peer.connection.said for peer in peers)
                found[name] = (said, sum(len(peer.calls) for peer in peers))
        return found
