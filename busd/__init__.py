"""busd: the message bus for AI agents on a Linux host.

from busd import Client

async with Client("agent:bob") as bus:
    receipt = await bus.send("agent:alice", {"type": "hello", "content": {}})
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from busd.bus.message import Ack, Receipt
    from busd.client.client import Client
    from busd.client.incoming import Incoming
    from busd.client.sync import SyncClient
    from busd.errors import (
        BusdError,
        BusUnreachable,
        CallRefused,
        ConnectionLost,
        NoAnswer,
        Refuse,
    )

_HOME = {
    "Ack": "busd.bus.message",
    "BusUnreachable": "busd.errors",
    "BusdError": "busd.errors",
    "CallRefused": "busd.errors",
    "Client": "busd.client.client",
    "ConnectionLost": "busd.errors",
    "Incoming": "busd.client.incoming",
    "NoAnswer": "busd.errors",
    "Receipt": "busd.bus.message",
    "Refuse": "busd.errors",
    "SyncClient": "busd.client.sync",
}

__all__ = [
    "Ack",
    "BusUnreachable",
    "BusdError",
    "CallRefused",
    "Client",
    "ConnectionLost",
    "Incoming",
    "NoAnswer",
    "Receipt",
    "Refuse",
    "SyncClient",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: `busd --help` needs none of them."""
    if name not in _HOME:
        raise AttributeError(f"module 'busd' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
