"""Decide what becomes of an HTTP request: a WebSocket, one of our pages, or an error."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlsplit

import msgspec
from websockets.http11 import Request

# Not all proxies send the first ones; those of large networks have their own.
_PROXY_HEADERS = {
    *("forwarded", "via", "x-real-ip", "x-forwarded", "x-client-ip", "true-client-ip"),
    *("cdn-loop", "cf-connecting-ip", "fly-client-ip", "fastly-client-ip"),
    *("x-cluster-client-ip", "x-original-forwarded-for", "x-envoy-external-address"),
}
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class Page(msgspec.Struct, frozen=True):
    """An answer to an HTTP request that does not become a WebSocket."""

    status: int
    text: str
    content_type: str = "text/plain; charset=utf-8"


class HttpGate:
    """Admits WebSockets at `/` and serves the pages of this bus.

    A browser sends the site of the web page in `Origin`. It must be this bus, under a loopback
    name (a foreign domain may resolve to this host: DNS rebinding), or be listed in the settings.
    A request for one of our pages may have no `Origin`, but `Host` would still be the foreign
    domain; so pages are served under the names of this host only.
    """

    def __init__(
        self,
        allowed_origins: Iterable[str] = (),
        pages: Mapping[str, Callable[[], Page]] | None = None,
        hosts: Iterable[str] = (),
    ) -> None:
        self.pages = pages or {}
        self.change(allowed_origins, hosts)

    def change(self, allowed_origins: Iterable[str], hosts: Iterable[str]) -> None:
        """Change the allowed sites and the names of this host while running."""
        self._allowed_origins = tuple(allowed_origins)
        self._hosts = {"localhost", *(name.lower() for name in hosts)}

    def answer(self, request: Request) -> Page | None:
        """Return the answer to a request, or None if it is to become a WebSocket."""
        try:
            path = urlsplit(request.path).path
        except ValueError:  # "//[": half an IPv6 address
            return Page(400, "The path of this request is malformed.\n")
        if len(request.headers.get_all("Authorization")) > 1:
            return Page(400, "More than one Authorization header.\n")
        origins = request.headers.get_all("Origin")
        if origins and not self._may_come_from(origins, request.headers.get_all("Host")):
            return Page(403, f"Origin {origins[0]!r} may not use this bus; see allowed_origins.\n")
        if path in self.pages:
            if request.method not in ("GET", "HEAD"):
                return Page(405, f"{path} can only be read: GET or HEAD.\n")
            return self._show(self.pages[path], request.headers.get_all("Host"))
        if path != "/":
            return Page(404, f"There is nothing at {path}; the bus is at /.\n")
        return None

    def _show(self, page: Callable[[], Page], hosts: list[str]) -> Page:
        # A request without Host does not come from a browser.
        if all(map(self._is_ours, hosts)):
            return page()
        return Page(403, f"Host {hosts[0]!r} is no name of this bus; see allowed_hosts.\n")

    def _is_ours(self, host: str) -> bool:
        """True for the names of this host and for IP addresses, which no foreign site can be."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name in self._hosts:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _may_come_from(self, origins: list[str], hosts: list[str]) -> bool:
        if len(origins) != 1:
            return False
        if origins[0] in self._allowed_origins:
            return True
        return len(hosts) == 1 and _is_same_site(origins[0], hosts[0])


def _is_same_site(origin: str, host: str) -> bool:
    try:
        page, bus = urlsplit(origin), urlsplit(f"//{host}")
        names_match = page.hostname == bus.hostname and page.port == bus.port
    except ValueError:  # the port is not a number
        return False
    return names_match and page.hostname in _LOOPBACK_NAMES


def is_forwarded(request: Request) -> bool:
    """Return whether a proxy forwarded the request, so that its sender is not the client."""
    return any(map(is_of_proxy, request.headers))


def is_of_proxy(header: str) -> bool:
    """Return whether it is the name of a header that proxies add."""
    name = header.lower()
    return name in _PROXY_HEADERS or name.startswith("x-forwarded-")


def token_of(request: Request) -> str:
    """Return the token of an Authorization header: Bearer, or the password of Basic."""
    # There may be several; `answer` refuses more than one.
    header = next(iter(request.headers.get_all("Authorization")), "")
    kind, _, value = header.partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except ValueError:  # not ASCII, base64 or UTF-8
            return ""
    return ""
