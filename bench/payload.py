"""The bytes that every generator sends and answers, the same for all servers."""

from __future__ import annotations

# What a receiver answers: the result of `processMessage`, and the body of a NATS reply.
ACK = b'{"success":true,"message":"ok","shouldRetry":false,"retrySeconds":0,"payload":{}}'
# How many messages go to one address for which nobody is there: busd keeps 10,000 for each.
BOX_MESSAGES = 5_000


def make_payload(size: int) -> bytes:
    """A JSON object of that many bytes, of one text."""
    empty = b'{"type":"bench","content":{"text":"%b"}}'
    text = b"x" * (size - len(empty % b""))
    return empty % text
