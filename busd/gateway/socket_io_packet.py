"""Packets of Socket.IO (protocol version 5), without those that have binary attachments.

A packet is a digit, the namespace with a comma unless it is `/`, the number of an ack if there is
one, and JSON: `2/agents,7["message",{"text":"hi"}]`.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

import msgspec

_decode = msgspec.json.Decoder(Any).decode
_encode = msgspec.json.Encoder().encode
_PACKET = re.compile(
    r"(?P<kind>[0-6])(?:(?P<attachments>\d{1,9})-)?"
    r"(?:(?P<namespace>/[^,?]{0,99})(?:\?[^,]{0,999})?(?:,|$))?(?P<ack>\d{1,15})?(?P<data>\D.*)?",
    re.DOTALL | re.ASCII,
)
# What a client may not send as the name of an event: the libraries have a use of their own for it.
_RESERVED = {"connect", "connect_error", "disconnect", "disconnecting", "newListener"}


class Kind(Enum):
    """What a packet is for."""

    CONNECT = "0"
    DISCONNECT = "1"
    EVENT = "2"
    ACK = "3"
    CONNECT_ERROR = "4"
    BINARY_EVENT = "5"
    BINARY_ACK = "6"


class BadPacket(Exception):
    """A packet is malformed."""


class Packet(msgspec.Struct, frozen=True):
    """A packet of a client. Its data are decoded when they are asked for: that costs much more."""

    kind: Kind
    namespace: str = "/"
    ack: int | None = None
    text: str | None = None

    @property
    def data(self) -> Any:
        """Return what it carries; raise BadPacket."""
        try:
            return None if self.text is None else _decode(self.text)
        except RecursionError:
            raise BadPacket("the data are nested too deeply") from None
        except (ValueError, UnicodeEncodeError) as problem:
            raise BadPacket(f"the data are no JSON: {problem}") from None

    @property
    def event(self) -> tuple[str, Any]:
        """Return the name of an event, and what it carries; raise BadPacket."""
        said = self.data
        if not isinstance(said, list) or not said or not isinstance(said[0], str):
            raise BadPacket("an event is an array that begins with its name")
        if said[0] in _RESERVED:
            raise BadPacket(f"{said[0]!r} is reserved")
        return said[0], said[1] if len(said) > 1 else None


def parse_packet(text: str) -> Packet:
    """Parse a packet; raise BadPacket."""
    found = _PACKET.fullmatch(text)
    if found is None:
        raise BadPacket("not a packet of Socket.IO")
    ack = None if found["ack"] is None else int(found["ack"])
    return Packet(Kind(found["kind"]), found["namespace"] or "/", ack, found["data"])


def encode_connected(namespace: str, sid: str) -> bytes:
    return b"0%s%s" % (_prefix(namespace), _encode({"sid": sid}))


def encode_refused(namespace: str, reason: str) -> bytes:
    return b"4%s%s" % (_prefix(namespace), _encode({"message": reason}))


def encode_disconnected(namespace: str) -> bytes:
    return b"1%s" % _prefix(namespace)


def encode_event(namespace: str, event: str, data: Any) -> bytes:
    return b"2%s%s" % (_prefix(namespace), _encode([event] if data is None else [event, data]))


def encode_ack(namespace: str, number: int, data: Any) -> bytes:
    return b"3%s%d%s" % (_prefix(namespace), number, _encode([] if data is None else [data]))


def _prefix(namespace: str) -> bytes:
    return b"" if namespace == "/" else namespace.encode() + b","
