"""Outages: what is reported while Telegram does not serve the bridge, and when it tries again."""

from __future__ import annotations

import anyio
import msgspec

from busd import Bridge
from busd_plugins.telegram.faults import Fault


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How long the bridge waits for Telegram, and before it tries again."""

    poll_seconds: int = 25
    glance_seconds: float = 1.0  # between polls while updates are under way
    retry_seconds: float = 1.0  # doubled up to the next
    max_retry_seconds: float = 60.0
    conflict_seconds: float = 30.0
    unauthorized_seconds: float = 60.0
    check_seconds: float = 60.0  # between two looks at the webhook

    def pause(self, fault: Fault, times: int) -> float:
        """Return how long to wait after a fault that has happened so many times."""
        if fault.kind == "slow_down":
            return max(fault.seconds, self.glance_seconds)
        first = {"conflict": self.conflict_seconds, "unauthorized": self.unauthorized_seconds}
        seconds = first.get(fault.kind, self.retry_seconds)
        most = max(self.max_retry_seconds, seconds * 8)
        return float(min(seconds * 2 ** min(times, 10), most))


class Outage:
    """The faults since Telegram served the bridge the last time."""

    def __init__(self, bridge: Bridge, timing: Timing) -> None:
        self._bridge = bridge
        self._timing = timing
        self._times = 0
        self.is_over = False  # Telegram has served the bridge since

    async def wait(self, fault: Fault) -> None:
        """Report what is wrong, and wait; a conflict is not fought over."""
        match fault.kind:
            case "conflict":
                detail = "another program receives the updates of this bot"
                self._bridge.report("conflict", f"{detail}: {fault.description}")
            case "unauthorized":
                self._bridge.report("unauthorized", "Telegram does not accept the token")
            case _:
                self._bridge.report("waiting", fault.description)
        self.is_over = False
        seconds = self._timing.pause(fault, self._times)
        self._times += 1
        await anyio.sleep(seconds)

    def end(self) -> None:
        """Report that Telegram serves the bridge."""
        self._times = 0
        self.is_over = True
        self._bridge.report("connected")
