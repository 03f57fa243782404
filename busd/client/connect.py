"""Connect to the bus, and the pauses between attempts."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import msgspec
from anyio.abc import TaskGroup

from busd.client.line import Line, TakeMessage
from busd.wire.bus_address import BusAddress
from busd.wire.connection import Connection, WireLimits
from busd.wire.driver import drive, scheduler
from busd.wire.interfaces import Framer
from busd.wire.lines import LineFramer
from busd.wire.sockets import connect_to
from busd.wire.turns import Turns

if TYPE_CHECKING:
    import ssl

    from busd.wire.tls import TlsTransport

_MIB = 1024 * 1024
# A client trusts its bus: a long getStatus is no attack.
LIMITS = WireLimits(max_frame_bytes=64 * _MIB, max_hello_bytes=64 * _MIB)
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 5.0


async def open_line(
    address: BusAddress,
    tasks: TaskGroup,
    touched: list[Connection],
    take: TakeMessage,
    tls: ssl.SSLContext | None = None,
) -> Line:
    """Return a line over a new connection, not initialized yet; raise BusUnreachable."""
    sock = await connect_to(address)
    framer = _framer_for(address)
    connection = Connection(
        framer,
        touched,
        Turns(scheduler()),
        LIMITS,
        str(address),
        on_gone=lambda _: line.gone.set(),
    )
    line = Line(connection, take)
    connection.session = line
    await drive(sock, _wrapped(connection, address, tls), tasks)
    return line


def _wrapped(
    connection: Connection, address: BusAddress, tls: ssl.SSLContext | None
) -> Connection | TlsTransport:
    """Wrap the connection in TLS if the address requires it."""
    if not address.is_encrypted:
        return connection
    # Imported only if needed: OpenSSL takes a while to load.
    from busd.wire.tls import TlsTransport

    return TlsTransport(connection, tls or _default_context(), address.host)


@cache
def _default_context() -> ssl.SSLContext:
    """Return a context that trusts the authorities of $BUSD_CA_FILE, or else of the system."""
    from busd.wire.tls_settings import make_client_context

    return make_client_context(os.environ.get("BUSD_CA_FILE"))


def _framer_for(address: BusAddress) -> Framer:
    if not address.is_web_socket:
        return LineFramer(LIMITS.max_frame_bytes)
    # Imported only if needed: it doubles the start-up time of a small program.
    from busd.wire.websocket import ClientFramer

    return ClientFramer(str(address), LIMITS.max_frame_bytes)


class Extensions(msgspec.Struct, frozen=True, rename="camel"):
    """What a bus does beyond v2 of the protocol, as far as a client uses it."""

    max_frame_bytes: int | None = None
    mail: bool = False
    caused_by: bool = False


class _Capabilities(msgspec.Struct, frozen=True):
    extensions: Extensions = Extensions()


class _Welcome(msgspec.Struct, frozen=True):
    capabilities: _Capabilities = _Capabilities()


def read_extensions(welcome: msgspec.Raw) -> Extensions:
    """Return what the bus announces in its answer to `initialize`."""
    try:
        return msgspec.json.decode(welcome, type=_Welcome).capabilities.extensions
    except msgspec.MsgspecError:
        return Extensions()  # another implementation of the protocol


def pauses() -> Iterator[float]:
    """Yield the seconds to wait before each attempt: doubling, and random to spread clients."""
    longest = _FIRST_PAUSE_SECONDS
    while True:
        yield random.uniform(longest / 2, longest)  # noqa: S311 - not a secret
        longest = min(longest * 2, _LONGEST_PAUSE_SECONDS)
