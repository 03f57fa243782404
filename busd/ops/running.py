"""What the operator's methods and pages see of the daemon that runs."""

from __future__ import annotations

from typing import Protocol

from busd.bus.bus import Bus
from busd.ops.config import Settings
from busd.ops.offload import Offload
from busd.ops.tokens import TokenStore
from busd.plugin.host import PluginHost
from busd.wire.connections import Connections


class RunningBus(Protocol):
    """A bus with everything around it; the daemon is one."""

    settings: Settings
    bus: Bus
    connections: Connections
    tokens: TokenStore
    offload: Offload
    plugins: PluginHost
    lag_seconds: float
