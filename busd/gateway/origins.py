"""Which web pages may use the gateway, and under which names of this host.

The rules are those of the bus (`busd/wire/http_gate.py`), for every path and for WebSockets.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from busd.wire.http_gate import is_of_proxy

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
# A page of another site may show pictures from here, say; for these there is no `Origin`.
_OTHER_SITES = (b"cross-site", b"same-site")

Headers = list[tuple[bytes, bytes]]


class Origins:
    """The sites whose pages may use this gateway, and the names of its host.

    A foreign domain may resolve to this host (DNS rebinding). Then `Host` is that domain.
    """

    def __init__(self, allowed: Iterable[str] = (), hosts: Iterable[str] = ()) -> None:
        self._allowed = tuple(allowed)
        self._hosts = {"localhost", *(name.lower() for name in hosts)}

    def fault_of(self, headers: Headers) -> str:
        """Return why a request with these headers is refused; "" if it is not."""
        hosts, origins = values_of(headers, b"host"), values_of(headers, b"origin")
        if len(hosts) > 1 or not all(map(self._is_ours, hosts)):
            return f"Host {hosts[0]!r} is no name of this gateway; see gateway.allowed_hosts."
        if origins:
            if len(origins) == 1 and self._may_come_from(origins[0], hosts):
                return ""
            return f"Origin {origins[0]!r} may not use this gateway; see gateway.allowed_origins."
        return ""

    def _is_ours(self, host: str) -> bool:
        """Return whether it is a name of this host or an IP address, which no site can choose."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name in self._hosts:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _may_come_from(self, origin: str, hosts: list[str]) -> bool:
        if origin in self._allowed:
            return True
        return len(hosts) == 1 and _is_same_site(origin, hosts[0])


def _is_same_site(origin: str, host: str) -> bool:
    try:
        page, gateway = urlsplit(origin), urlsplit(f"//{host}")
        names_match = page.hostname == gateway.hostname and page.port == gateway.port
    except ValueError:  # the port is not a number
        return False
    return names_match and page.hostname in _LOOPBACK_NAMES


def has_two_lengths(headers: Headers) -> bool:
    """Return whether two servers could disagree on where the request ends.

    A proxy that obeys the other length would let its clients send requests in its own name.
    """
    names = {name for name, _ in headers}
    return {b"content-length", b"transfer-encoding"} <= names


def is_indirect(headers: Headers) -> bool:
    """Return whether the request was sent for others: by a proxy, or for a page of another site.

    Then the process that has sent it says nothing about who the client is.
    """
    for name, value in headers:
        if is_of_proxy(name.decode("latin-1")):
            return True
        if name == b"sec-fetch-site" and value in _OTHER_SITES and not has_origin(headers):
            return True
    return False


def has_origin(headers: Headers) -> bool:
    """Return whether the request names the page that has sent it; `Origins` has checked that."""
    return any(name == b"origin" for name, _ in headers)


def values_of(headers: Headers, wanted: bytes) -> list[str]:
    """Return all values of a header; names are in lower case already."""
    return [value.decode("latin-1") for name, value in headers if name == wanted]


def base_url(headers: Headers) -> str:
    """Return what the URLs begin with under which this client reaches the gateway."""
    hosts = values_of(headers, b"host")
    is_encrypted = values_of(headers, b"x-forwarded-proto") == ["https"]
    return f"{'https' if is_encrypted else 'http'}://{hosts[0]}" if hosts else ""
