"""The settings of the gateway: the table `[gateway]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from busd import DeclaredSettings, Finding
from busd.gateway import GatewaySettings, check_gateway, missing_packages

if TYPE_CHECKING:
    from busd import PluginSettings


def find_doubts(own: GatewaySettings, limits: PluginSettings) -> Iterator[Finding]:
    """Find settings with which the gateway would not start, or not end in time."""
    table = own.gateway
    if not table.enabled:
        return
    if missing := missing_packages():
        words = f"gateway.enabled needs what is not installed: {', '.join(missing)}"
        yield Finding("gateway", "problem", words, "run: pip install 'busd[gateway]'")
    if not table.dialects:
        yield Finding("gateway", "warning", "gateway.dialects is empty", "name at least one")
    if table.drain_seconds + 1 >= limits.stop_seconds:
        seconds = table.drain_seconds
        words = (
            f"gateway.drain_seconds is {seconds:g} and plugins.stop_seconds only "
            f"{limits.stop_seconds:g}: a stopping bus would be gone before the gateway"
        )
        yield Finding(
            "configuration", "warning", words, f"set plugins.stop_seconds over {seconds + 1:g}"
        )


settings = DeclaredSettings(GatewaySettings, check=check_gateway, find_doubts=find_doubts)
