"""Where a bus listens: `unix:/path`, `tcp://host:port`, `tls://…`, `ws://…/`, `wss://…/`.

One parser serves `--listen`, `--address`, `BUSD_ADDRESS` and the clients.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from busd.errors import ConfigError

DEFAULT_PORT = 7892
_FORMS = "unix:/path, tcp://host:port, tls://host:port, ws://host:port/ or wss://host:port/"


@dataclass(frozen=True, slots=True)
class BusAddress:
    """One place where a bus can be found."""

    scheme: str
    path: str = ""  # of a Unix socket, or of the WebSocket
    host: str = ""
    port: int = 0
    token: str = field(default="", repr=False)  # the password of the URL; never printed

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    @property
    def is_encrypted(self) -> bool:
        return self.scheme in ("tls", "wss")

    @property
    def is_web_socket(self) -> bool:
        return self.scheme in ("ws", "wss")

    @property
    def is_loopback(self) -> bool:
        """True if it is reachable from this host only."""
        if self.scheme == "unix" or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_bus_address(text: str) -> BusAddress:
    """Parse the address of a bus; raise ConfigError if it is invalid."""
    scheme, colon, rest = text.partition(":")
    if scheme == "unix" and colon:
        return _parse_unix(text, rest)
    if scheme not in ("tcp", "tls", "ws", "wss") or not rest.startswith("//"):
        raise ConfigError(f"{_without_secrets(text)!r} is not an address of a bus; use {_FORMS}")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as problem:
        raise ConfigError(f"{_without_secrets(text)!r}: {problem}") from None
    if not host:
        raise ConfigError(f"{_without_secrets(text)!r} names no host; use {_FORMS}")
    if parts.query or parts.fragment:
        raise ConfigError(f"{_without_secrets(text)!r}: no ? or # here, only host, port and path")
    if scheme in ("tcp", "tls") and parts.path not in ("", "/"):
        raise ConfigError(f"{_without_secrets(text)!r}: a {scheme} address has no path")
    path = (parts.path or "/") if scheme in ("ws", "wss") else ""
    token = unquote(parts.password or "")
    return BusAddress(scheme, path, host, DEFAULT_PORT if port is None else port, token)


def _parse_unix(text: str, path: str) -> BusAddress:
    if path.startswith("//"):
        path = path.removeprefix("//")  # unix:///path is the same as unix:/path
    if not path or "\0" in path:
        raise ConfigError(f"{text!r} names no path; use unix:/path")
    if len(path.encode()) > 107:
        raise ConfigError(f"{text!r}: a Unix socket's path has at most 107 bytes")
    return BusAddress("unix", path)


def _without_secrets(text: str) -> str:
    before, at, after = text.rpartition("@")
    scheme, slashes, _ = before.partition("://")
    return f"{scheme if slashes else ''}{slashes}…@{after}" if at else text
