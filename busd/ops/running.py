"""What the operator's methods and pages see of the daemon that runs."""

from __future__ import annotations

from typing import Protocol

import anyio

from busd.bus.bus import Bus
from busd.journal.journal import Journal
from busd.ops.offload import Offload
from busd.ops.reloads import Reloaded, Reloads
from busd.ops.tokens import TokenStore
from busd.plugin.host import PluginHost
from busd.settings.config import Settings
from busd.wire.connections import Connections
from busd.wire.listener import Listener


class RunningBus(Protocol):
    """A bus with everything around it; the daemon is one."""

    settings: Settings
    bus: Bus
    journal: Journal | None
    connections: Connections
    tokens: TokenStore
    offload: Offload
    plugins: PluginHost
    listeners: list[Listener]
    reloads: Reloads
    last_reload: Reloaded
    lag_seconds: float
    is_stopping: anyio.Event

    @property
    def longest_stop_seconds(self) -> float: ...
