"""busd: the message bus for AI agents on a Linux host.

from busd import Client

async with Client("agent:bob") as bus:
    receipt = await bus.send("agent:alice", {"type": "hello", "content": {}})
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from busd.agent.agent import Agent
    from busd.agent.turn import Turn, TurnFailed
    from busd.agent.unfinished import UnfinishedTurn, finish_turns, unfinished_turns
    from busd.bridge.bridge import Bridge
    from busd.bus.access import Identity
    from busd.bus.message import Ack, Outcome, Receipt
    from busd.client.client import Client
    from busd.client.incoming import Incoming
    from busd.client.run import run
    from busd.client.sync import SyncClient
    from busd.errors import (
        BusdError,
        BusForbidden,
        BusUnreachable,
        CallRefused,
        ConfigError,
        ConnectionLost,
        NoAnswer,
        Refuse,
    )
    from busd.finding import Finding
    from busd.plugin.context import Context, Sent
    from busd.plugin.declared import DeclaredSettings
    from busd.plugin.host import PluginSettings
    from busd.plugin.plugin import Plugin
    from busd.rpc.envelope import as_many_as_fit
    from busd.vocabulary.addresses import (
        EVENTS_PREFIX,
        channel_of,
        chat_address,
        event_address,
        prefix_of,
    )
    from busd.vocabulary.bub import (
        AgentEvent,
        Configure,
        GeneralResponse,
        RouteAssigned,
        SpawnRequest,
        SpawnResult,
        TgMessage,
        TgReply,
    )
    from busd.vocabulary.payload import message, now, read_message, write_message

_HOME = {
    "Ack": "busd.bus.message",
    "Agent": "busd.agent.agent",
    "AgentEvent": "busd.vocabulary.bub",
    "Bridge": "busd.bridge.bridge",
    "BusForbidden": "busd.errors",
    "BusUnreachable": "busd.errors",
    "BusdError": "busd.errors",
    "CallRefused": "busd.errors",
    "Client": "busd.client.client",
    "ConfigError": "busd.errors",
    "Configure": "busd.vocabulary.bub",
    "ConnectionLost": "busd.errors",
    "Context": "busd.plugin.context",
    "DeclaredSettings": "busd.plugin.declared",
    "EVENTS_PREFIX": "busd.vocabulary.addresses",
    "Finding": "busd.finding",
    "GeneralResponse": "busd.vocabulary.bub",
    "Identity": "busd.bus.access",
    "Incoming": "busd.client.incoming",
    "NoAnswer": "busd.errors",
    "Outcome": "busd.bus.message",
    "Plugin": "busd.plugin.plugin",
    "PluginSettings": "busd.plugin.host",
    "Receipt": "busd.bus.message",
    "Refuse": "busd.errors",
    "RouteAssigned": "busd.vocabulary.bub",
    "Sent": "busd.plugin.context",
    "SpawnRequest": "busd.vocabulary.bub",
    "SpawnResult": "busd.vocabulary.bub",
    "SyncClient": "busd.client.sync",
    "TgMessage": "busd.vocabulary.bub",
    "TgReply": "busd.vocabulary.bub",
    "Turn": "busd.agent.turn",
    "TurnFailed": "busd.agent.turn",
    "UnfinishedTurn": "busd.agent.unfinished",
    "channel_of": "busd.vocabulary.addresses",
    "chat_address": "busd.vocabulary.addresses",
    "event_address": "busd.vocabulary.addresses",
    "finish_turns": "busd.agent.unfinished",
    "as_many_as_fit": "busd.rpc.envelope",
    "message": "busd.vocabulary.payload",
    "now": "busd.vocabulary.payload",
    "prefix_of": "busd.vocabulary.addresses",
    "read_message": "busd.vocabulary.payload",
    "run": "busd.client.run",
    "unfinished_turns": "busd.agent.unfinished",
    "write_message": "busd.vocabulary.payload",
}

__all__ = [
    "EVENTS_PREFIX",
    "Ack",
    "Agent",
    "AgentEvent",
    "Bridge",
    "BusForbidden",
    "BusUnreachable",
    "BusdError",
    "CallRefused",
    "Client",
    "ConfigError",
    "Configure",
    "ConnectionLost",
    "Context",
    "DeclaredSettings",
    "Finding",
    "GeneralResponse",
    "Identity",
    "Incoming",
    "NoAnswer",
    "Outcome",
    "Plugin",
    "PluginSettings",
    "Receipt",
    "Refuse",
    "RouteAssigned",
    "Sent",
    "SpawnRequest",
    "SpawnResult",
    "SyncClient",
    "TgMessage",
    "TgReply",
    "Turn",
    "TurnFailed",
    "UnfinishedTurn",
    "as_many_as_fit",
    "channel_of",
    "chat_address",
    "event_address",
    "finish_turns",
    "message",
    "now",
    "prefix_of",
    "read_message",
    "run",
    "unfinished_turns",
    "write_message",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: `busd --help` needs none of them."""
    if name not in _HOME:
        raise AttributeError(f"module 'busd' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
