"""The accounting: what the bus has counted for each identity must be what there is."""

from __future__ import annotations

from collections import Counter

from msgspec import UNSET

from busd.bus.bus import Bus
from busd.bus.peer import RemotePeer
from busd.bus.quota import Allowance
from busd.bus.routes import is_glob
from busd.testing import MemoryBus
from tests.simulation.ledger import claim


def check_accounts(bus: MemoryBus) -> None:
    """Count everything anew and compare."""
    accounts = bus.core.accounts
    waiting, owed = _count_waiting(bus.core)
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
            "unanswered": sum(
                count for allowance, count in waiting.items() if allowance.account is account
            ),
        }
        counted = {name: getattr(account, name) for name in right}
        claim(counted == right, f"{account.name}: counted {counted}, there are {right}")
        claim(account.granted >= account.unanswered, f"{account.name}: more waits than is granted")
    for peer in peers:
        allowance = peer.allowance
        right_counts = waiting[allowance], owed[allowance]
        counts = allowance.waiting, allowance.owed
        claim(counts == right_counts, f"{peer.name}: counted {counts}, there are {right_counts}")
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


def _count_waiting(core: Bus) -> tuple[Counter[Allowance], Counter[Allowance]]:
    """Return how many acks are missing, and how many of these their sender is told."""
    waiting: Counter[Allowance] = Counter()
    owed: Counter[Allowance] = Counter()
    for peer in core.peers:
        for delivery in peer.calls.values():
            waiting[delivery.allowance] += 1
            owed[delivery.allowance] += delivery.request_id is not UNSET
    return waiting, owed
