"""A limit on the log: a flood of one kind of line is cut short and counted.

Peers cause log lines, authenticated or not: each connection that is closed, refused or fails is
one. Every line passes here, so callers need no limit of their own. Lines of level debug are
exempt, because they are requested explicitly.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog

from busd.bus.bucket import Bucket

REPORT_SECONDS = 10.0
_LINES_PER_SECOND, _LINES_AT_ONCE = 10.0, 100  # of one event
_MAX_EVENTS = 1_000  # known by name; a plugin can invent any number, and they share one limit
_MAX_CHARACTERS = 1_000  # of a value: an invalid address may have a MiB
_OTHERS = "(other events)"
_REPORT = "log.suppressed"

Line = MutableMapping[str, Any]


class LogLimit:
    """A structlog processor: drops the lines of an event that is logged too often."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}
        self._suppressed: Counter[str] = Counter()

    def __call__(self, logger: object, method: str, line: Line) -> Line:
        """Return the line, its values shortened; raise DropEvent if there were too many."""
        event = str(line.get("event", ""))
        if method != "debug" and event != _REPORT:
            self._count(event)
        for name, value in line.items():
            if isinstance(value, str) and len(value) > _MAX_CHARACTERS:
                line[name] = f"{value[:_MAX_CHARACTERS]}… ({len(value)} characters)"
        return line

    def _count(self, event: str) -> None:
        if event not in self._buckets and len(self._buckets) >= _MAX_EVENTS:
            event = _OTHERS
        bucket = self._buckets.get(event)
        if bucket is None:
            bucket = Bucket(_LINES_PER_SECOND, _LINES_AT_ONCE, self._clock)
            self._buckets[event] = bucket
        if bucket.take():
            self._suppressed[event] += 1
            raise structlog.DropEvent

    def report(self) -> None:
        """Log how many lines of each event were left out since the last report."""
        suppressed, self._suppressed = self._suppressed, Counter()
        for event, count in suppressed.items():
            structlog.get_logger("busd.ops").warning(_REPORT, suppressed=event, lines=count)


log_limit = LogLimit()
"""The limit on the log of this process."""
