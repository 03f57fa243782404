"""How messages are cut on the wire, lean: lines, or WebSocket text frames as a client sees them."""

from __future__ import annotations

from typing import Protocol


class Framing(Protocol):
    """Cuts a stream into messages, and makes a message fit for the stream."""

    def wrap(self, message: bytes) -> bytes:
        """Make one message fit for the wire."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the messages that this chunk completes."""


class Lines:
    """One message per line."""

    def __init__(self) -> None:
        self.rest = b""

    def wrap(self, message: bytes) -> bytes:
        """Make one message fit for the wire."""
        return message + b"\n"

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the messages that this chunk completes."""
        lines = (self.rest + chunk if self.rest else chunk).split(b"\n")
        self.rest = lines.pop()
        return lines


class TextFrames:
    """One message per WebSocket text frame, as a client sees it."""

    def __init__(self) -> None:
        self.rest = b""

    def wrap(self, message: bytes) -> bytes:
        """Make one message fit for the wire."""
        # A client must mask. The key 0 is a legal key and leaves the bytes as they are.
        return text_header(len(message)) + message

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the messages that this chunk completes."""
        data = self.rest + chunk if self.rest else chunk
        messages: list[bytes] = []
        start, end = 0, len(data)
        while start + 2 <= end:
            size, body = data[start + 1], start + 2
            if size == 126:
                size, body = int.from_bytes(data[body : body + 2]), body + 2
            elif size == 127:
                size, body = int.from_bytes(data[body : body + 8]), body + 8
            if body + size > end:
                break
            if data[start] == 0x81:
                messages.append(data[body : body + size])
            start = body + size
        self.rest = data[start:]
        return messages


def text_header(size: int) -> bytes:
    """The header of a whole text frame from a client, masked with the key 0."""
    if size < 126:
        return bytes((0x81, 0x80 | size)) + b"\0\0\0\0"
    if size < 65536:
        return b"\x81\xfe" + size.to_bytes(2) + b"\0\0\0\0"
    return b"\x81\xff" + size.to_bytes(8) + b"\0\0\0\0"
