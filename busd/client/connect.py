"""Open a line to the bus, and the pauses between tries."""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import inf

import msgspec
from anyio.abc import TaskGroup

from busd.client.line import Line, TakeMessage
from busd.wire.bus_address import BusAddress
from busd.wire.connection import Connection, Framer, WireLimits
from busd.wire.driver import drive
from busd.wire.lines import LineFramer
from busd.wire.sockets import connect_to

_MIB = 1024 * 1024
# A client trusts its bus: a long getStatus is no attack.
LIMITS = WireLimits(max_frame_bytes=64 * _MIB, max_hello_bytes=64 * _MIB)
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 5.0


async def open_line(
    address: BusAddress, tasks: TaskGroup, touched: list[Connection], take: TakeMessage
) -> Line:
    """Give a line over a fresh connection; nothing has been said yet. Raises BusUnreachable."""
    sock = await connect_to(address)
    framer = _framer_for(address)
    connection = Connection(
        framer, touched, LIMITS, str(address), on_gone=lambda _: line.gone.set()
    )
    line = Line(connection, take)
    connection.session = line
    await drive(sock, connection, tasks)
    return line


def _framer_for(address: BusAddress) -> Framer:
    if not address.is_web_socket:
        return LineFramer(LIMITS.max_frame_bytes)
    # Imported only by those who need it: it doubles the start-up time of a small program.
    from busd.wire.websocket import ClientFramer

    return ClientFramer(str(address), LIMITS.max_frame_bytes)


class _Extensions(msgspec.Struct, frozen=True, rename="camel"):
    max_frame_bytes: int | None = None


class _Capabilities(msgspec.Struct, frozen=True):
    extensions: _Extensions = _Extensions()


class _Welcome(msgspec.Struct, frozen=True):
    capabilities: _Capabilities = _Capabilities()


def read_frame_limit(welcome: msgspec.Raw) -> float:
    """Give the largest frame that the bus takes, as its answer to `initialize` says."""
    try:
        found = msgspec.json.decode(welcome, type=_Welcome)
    except msgspec.MsgspecError:
        return inf  # another bus, with other words
    return found.capabilities.extensions.max_frame_bytes or inf


def pauses() -> Iterator[float]:
    """Give the seconds to wait before each try: doubling, and random so that clients spread."""
    longest = _FIRST_PAUSE_SECONDS
    while True:
        yield random.uniform(longest / 2, longest)  # noqa: S311 - not a secret
        longest = min(longest * 2, _LONGEST_PAUSE_SECONDS)
