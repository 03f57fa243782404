"""Destinations: which addresses of the network a callback may be sent to.

A name is resolved once; the connection goes to the address that was checked, so that another
answer of the name server changes nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import anyio

Resolve = Callable[[str, int], Awaitable[list[str]]]
_RESOLVE_SECONDS = 5.0
# Addresses of IPv6 that stand for one of IPv4, in their last 32 bits.
_TRANSLATED = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"), ip_network("::/96"))
_DISCARD_PORT = 9


class BadDestination(Exception):
    """A URL that nothing is sent to, and why."""


class Unresolved(Exception):
    """A name that cannot be resolved now."""


class Destination(NamedTuple):
    """A URL, and the addresses it may be reached at."""

    host: str
    port: int
    is_encrypted: bool
    target: str  # path and query
    authority: str  # for the header `Host`
    addresses: list[str]


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a name; raise OSError."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


async def find_destination(
    url: str, *, allow_private: bool, resolve: Resolve = resolve
) -> Destination:
    """Return where a URL leads; raise BadDestination or Unresolved."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as problem:
        raise BadDestination(f"it is no URL: {problem}") from None
    if not url.isascii() or not url.isprintable() or " " in url:
        raise BadDestination("it has characters that must be encoded")
    schemes = ("https", "http") if allow_private else ("https",)
    if parts.scheme not in schemes or not host:
        raise BadDestination(f"it must begin with {' or '.join(f'{each}://' for each in schemes)}")
    if parts.username is not None or parts.password is not None:
        raise BadDestination("it contains a user name")
    is_encrypted = parts.scheme == "https"
    port = port if port is not None else 443 if is_encrypted else 80
    try:
        with anyio.fail_after(_RESOLVE_SECONDS):
            addresses = await resolve(host, port)
    except (OSError, UnicodeError) as problem:  # a TimeoutError is an OSError
        reason = getattr(problem, "strerror", None) or "no answer of the name server"
        raise Unresolved(f"{host} cannot be resolved: {reason}") from None
    for address in addresses:
        if not allow_private and (fault := fault_of(address)):
            raise BadDestination(f"{host} is {fault}; see bridges.hook.allow_private_callbacks")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    authority = parts.netloc
    return Destination(host, port, is_encrypted, target, authority, addresses)


def fault_of(text: str) -> str:
    """Return what keeps an address from getting callbacks: it is private, or of this host."""
    address: Any = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        address = _without_translation(address)
    is_public = address.is_global and not address.is_multicast and not address.is_reserved
    if not is_public:
        return f"{text}, which is no address of the public network"
    return f"{text}, which is an address of this host" if is_of_this_host(text) else ""


def _without_translation(address: IPv6Address) -> IPv4Address | IPv6Address:
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address.teredo is not None:
        return IPv6Address("::1")  # through a tunnel: nobody knows where it leads
    if inner is None and any(address in each for each in _TRANSLATED):
        inner = IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


def is_of_this_host(address: str) -> bool:
    """Ask the kernel which address it would send from; nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((address, _DISCARD_PORT))
        except OSError:
            return False  # there is no way to it
        return str(sock.getsockname()[0]) == address
