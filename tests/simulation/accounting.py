"""The accounting: what the bus has counted for each identity must be what there is."""

from __future__ import annotations

from collections import Counter

from msgspec import UNSET

from busd.bus.bus import Bus
from busd.bus.peer import RemotePeer
from busd.bus.quota import Account
from busd.bus.routes import is_glob
from busd.testing import MemoryBus
from tests.simulation.ledger import claim


def check_accounts(bus: MemoryBus) -> None:
    """Count everything anew and compare."""
    accounts = bus.core.accounts
    unanswered, owed = _count_waiting(bus.core)
    sessions = [connection.session for connection in bus.connections.open]
    peers = [session for session in sessions if isinstance(session, RemotePeer)]
    for account in (accounts.unknown, *accounts.by_name.values()):
        own = [peer for peer in peers if peer.account is account]
        patterns = [pattern for peer in own for pattern in peer.subscriptions]
        right = {
            "connections": len(own),
            "subscriptions": len(patterns),
            "globs": sum(map(is_glob, patterns)),
            "unread_bytes": sum(peer.connection.unread_bytes for peer in own),
            "held_bytes": sum(peer.connection.held_bytes for peer in own),
            "info_bytes": 0,
            "unanswered": unanswered[account],
        }
        counted = {name: getattr(account, name) for name in right}
        claim(counted == right, f"{account.name}: counted {counted}, there are {right}")
    for peer in peers:
        claim(peer.owed == owed[peer], f"{peer.name} is owed {owed[peer]}, not {peer.owed}")
        connection = peer.connection
        if not connection.is_closed:  # its last words are not counted
            size = connection.transport.get_write_buffer_size() if connection.is_slow else 0
            claim(connection.unread_bytes == size, f"{size} bytes are unread by {peer.name}")


def check_nothing_counted(bus: MemoryBus) -> None:
    """Nobody may be charged for anything when everybody is gone."""
    accounts = bus.core.accounts
    for account in (accounts.unknown, *accounts.by_name.values()):
        claim(account.is_empty, f"{account.name} is still charged")
        claim(account.memory_bytes == 0, f"{account.name} still uses memory")


def _count_waiting(core: Bus) -> tuple[Counter[Account], Counter[object]]:
    unanswered: Counter[Account] = Counter()
    deliveries = {}
    for peer in core.peers:
        for delivery in peer.calls.values():
            unanswered[delivery.sender.account] += 1
            if delivery.request_id is not UNSET:
                deliveries[delivery.call_id] = delivery.sender
    return unanswered, Counter(deliveries.values())
