"""The pages of the bus, `/metrics`, `/livez` and `/readyz`, and who may look at them."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, generate_latest
from websockets.http11 import Request

from busd.ops.config import Settings
from busd.ops.metrics import BusCollector
from busd.ops.running import RunningBus
from busd.wire.bus_address import parse_bus_address
from busd.wire.doorman import Doorman, Page

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


class PagesDoorman(Doorman):
    """Shows the pages only to who asks for them by a name of this host.

    A site may have its own name lead to us (DNS rebinding). To a browser its page and ours are
    then the same site: there is no `Origin`, but `Host` is still that site's name.
    """

    def __init__(self, settings: Settings, pages: Mapping[str, Callable[[], Page]]) -> None:
        super().__init__(pages=pages)
        self.change(settings)

    def change(self, settings: Settings) -> None:
        """Take new settings while running."""
        self.allowed_origins = tuple(settings.allowed_origins)
        listening = (parse_bus_address(text).host for text in settings.listen)
        names = ("localhost", *listening, *settings.allowed_hosts)
        self._hosts = {name.lower() for name in names if name}

    def look_at(self, request: Request) -> Page | None:
        hosts = request.headers.get_all("Host")
        is_page = urlsplit(request.path).path in self.pages
        # One without any is no browser's.
        if is_page and not all(map(self._is_ours, hosts)):
            return Page(403, f"Host {hosts[0]!r} is no name of this bus; see allowed_hosts.\n")
        return super().look_at(request)

    def _is_ours(self, host: str) -> bool:
        """True for the names we know, and for every plain address: no site can be one."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name in self._hosts:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
