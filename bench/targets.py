"""What busd must reach, and whether this run shows that it did."""

from __future__ import annotations

import msgspec

from bench.plan import FLOOR
from bench.results import Outcome, Results

NATS_PY = "nats-server + nats-py"
JETSTREAM = "jetstream + nats-py"
JETSTREAM_ALWAYS = "jetstream+always + nats-py"
SDK = "busd uvloop unix + SDK"


class Target(msgspec.Struct, frozen=True):
    """A limit for one measure of one row, absolute or as a ratio to another contender."""

    workload: str
    contender: str
    limit: float
    measure: str = "server_us"
    ratio_to: str = FLOOR
    is_ceiling: bool = True


TARGETS = (
    Target("W2", "busd uvloop unix", 1.4),
    Target("W3", "busd uvloop unix", 1.5),
    Target("W2", "busd uvloop+log unix", 1.35, ratio_to="busd uvloop unix"),
    Target("W3", "busd uvloop+log unix", 1.35, ratio_to="busd uvloop unix"),
    Target("W2", "busd trio unix", 1.6),
    Target("W3", "busd trio unix", 2.0),
    Target("W2", "busd uvloop ws", 4.0),
    Target("W3", "busd uvloop ws", 4.0),
    # Counting for /metrics must not show: what is left is the noise of the machine.
    Target("W2", "busd uvloop unix", 1.05, ratio_to="busd uvloop-metrics unix"),
    Target("W3", "busd uvloop unix", 1.05, ratio_to="busd uvloop-metrics unix"),
    Target("idle1000", "busd uvloop unix", 6.0, "kib_per_connection", ""),
    Target("idle10000", "busd uvloop unix", 6.0, "kib_per_connection", ""),
    Target("W2", SDK, 1.0, "acked_per_second", NATS_PY, is_ceiling=False),
    Target("W3", SDK, 1.0, "acked_per_second", NATS_PY, is_ceiling=False),
    Target("W2", SDK, 1.0, "client_us", NATS_PY),
    Target("W3", SDK, 1.0, "client_us", NATS_PY),
    # busd syncs before it acks; JetStream does so only as "always".
    Target("durable-kept", SDK, 1.0, "acked_per_second", JETSTREAM, is_ceiling=False),
    Target("durable-kept", SDK, 1.0, "acked_per_second", JETSTREAM_ALWAYS, is_ceiling=False),
    Target("durable-kept", SDK, 1.0, ratio_to=JETSTREAM),
    Target("durable-kept", SDK, 1.0, ratio_to=JETSTREAM_ALWAYS),
)
NAMES = {
    "server_us": "server CPU",
    "client_us": "client CPU",
    "acked_per_second": "acked/s",
    "kib_per_connection": "KiB per connection",
}


def judge(results: Results, target: Target) -> tuple[str, str, str, str]:
    """A line of the table of targets: what, limit, measured, verdict."""
    sign = "≤" if target.is_ceiling else "≥"
    unit = f" × {target.ratio_to}" if target.ratio_to else ""
    what = f"{target.workload} {target.contender}, {NAMES[target.measure]}"
    limit = f"{sign} {target.limit:g}{unit}"
    outcome = results.find(target.workload, target.contender)
    value = read_value(results, target, outcome) if outcome else None
    if value is None:
        return what, limit, "–", "not measured"
    met = value <= target.limit if target.is_ceiling else value >= target.limit
    return what, limit, f"{value:.2f}", "met" if met else "MISSED"


def read_value(results: Results, target: Target, outcome: Outcome) -> float | None:
    """The figure that a target is about."""
    if target.ratio_to:
        return results.ratio(outcome, target.measure, target.ratio_to)
    return outcome.figure(target.measure).median
