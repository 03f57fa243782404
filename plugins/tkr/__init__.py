"""TKR: lets the clients of the TKR multi-agent chat talk to any agent on the bus.

Connect a Socket.IO client to the gateway, path `/socket.io`, in the namespace `/`, `/agents` or
`/tasks`, with `session_id` in the query and, for an agent to talk to, `agent_id`.
docs/dialects/tkr.md describes what is supported.

The functions in `adapters` convert messages between the standard spelling (`session_id`) and the
legacy one (`sessionId`).
"""

from __future__ import annotations

from busd_plugins.tkr.adapters import (
    is_legacy_format,
    is_standard_format,
    legacy_to_standard,
    normalize_message,
    standard_to_legacy,
)
from busd_plugins.tkr.dialect import Tkr, plugin

__all__ = [
    "Tkr",
    "is_legacy_format",
    "is_standard_format",
    "legacy_to_standard",
    "normalize_message",
    "plugin",
    "standard_to_legacy",
]
