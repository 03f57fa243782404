"""The pages of the bus, `/metrics`, `/livez` and `/readyz`, and by which names they are shown."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from busd.ops.metrics import BusCollector
from busd.ops.running import RunningBus
from busd.settings.config import Settings
from busd.wire.bus_address import parse_bus_address
from busd.wire.http_gate import Page

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Pages:
    """The pages of the bus: answered by the router loop itself, or not at all."""

    def __init__(self, daemon: RunningBus) -> None:
        self._daemon = daemon
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(BusCollector(daemon))
        self.by_path = {
            "/metrics": self.metrics,
            "/livez": lambda: Page(200, "ok\n"),
            "/readyz": self.readiness,
        }

    def metrics(self) -> Page:
        return Page(200, generate_latest(self._registry).decode(), _CONTENT_TYPE)

    def readiness(self) -> Page:
        if self._daemon.bus.is_stopping:
            return Page(503, "stopping\n")
        return Page(200, "ok\n")


def host_names(settings: Settings) -> list[str]:
    """Return the host names under which pages are served, besides IP addresses."""
    listening = [parse_bus_address(text).host for text in settings.listen]
    return [*filter(None, listening), *settings.allowed_hosts]
