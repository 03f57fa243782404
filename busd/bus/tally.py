"""The tally: plain numbers counted on the way, read when somebody asks for metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

SECONDS = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    60.0,
)
# One message in eight is timed: a clock and a search for each would cost 0.2 µs.
SAMPLE_MASK = 7


class Tally:
    """What happened on one bus since it started."""

    __slots__ = (
        "extra_copies",
        "failed",
        "latencies",
        "latency_sum",
        "other_ids",
        "refused",
        "unrouted",
    )

    def __init__(self) -> None:
        # The bus numbers what it accepts; only what differs from one addressee each is counted.
        self.extra_copies = 0
        self.other_ids = 0  # call ids that are no accepted message: mail handed over, records
        self.unrouted = 0
        self.failed: Counter[str] = Counter()  # acks that were no success, by outcome
        self.refused: Counter[str] = Counter()  # requests, by rule
        self.latencies = [0] * (len(SECONDS) + 1)
        self.latency_sum = 0.0

    def accepted(self, last_call_id: int) -> int:
        """Return how many messages were taken from senders."""
        return last_call_id - self.other_ids

    def handed_over(self, last_call_id: int) -> int:
        """Return how many copies of messages went to addressees."""
        return self.accepted(last_call_id) - self.unrouted + self.extra_copies

    def observe(self, seconds: float) -> None:
        """Note how long one delivery took."""
        self.latencies[bisect_left(SECONDS, seconds)] += 1
        self.latency_sum += seconds
