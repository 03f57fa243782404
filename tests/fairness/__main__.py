"""Run every flood against real daemons: `python -m tests.fairness --loop trio`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import get_args

from tests.daemons import Daemon, Loop, open_daemon
from tests.fairness.floods import FLOODS
from tests.fairness.pair import Waits, measure, measure_storm
from tests.fairness.storms import STORMS, Target
from tests.wire.tls.authority import Authority

_TLS = ("tls://127.0.0.1:0",)


def main() -> None:
    """Print, for each loop and flood, how long the messages of a bystander pair took."""
    parser = argparse.ArgumentParser(description=__doc__)
    loops = get_args(Loop)
    parser.add_argument("--loop", action="append", choices=loops, help="all three by default")
    parser.add_argument("--only", default="", help="floods with this in their name")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        issued = Authority(Path(folder), "authority").issue("localhost")
        tls = {"tls.certificate": issued.certificate, "tls.key": issued.key}
        for loop in chosen.loop or loops:
            print(f"\n{loop:36} {'longest':>10} {'p99':>10} {'median':>10} messages", flush=True)
            with open_daemon(loop, tls, log_level="error", listen=_TLS) as daemon:
                daemon.is_blamed = True  # this measures; faults are for the tests to find
                _measure_all(daemon, chosen.only)


def _measure_all(daemon: Daemon, only: str) -> None:
    _print("(no flood)", measure(daemon, None, 2))
    for flood in FLOODS:
        if only in flood.name:
            _print(flood.name, measure(daemon, flood))
    target = Target(daemon.path, daemon.port, daemon.more_ports[0])
    for storm in STORMS:
        if only in storm.name:
            _print(storm.name, measure_storm(daemon, storm, target))


def _print(name: str, waits: Waits) -> None:
    times = " ".join(f"{each * 1e3:7.1f} ms" for each in (waits.longest, waits.p99, waits.median))
    print(f"{name:36} {times} {waits.count:8}", flush=True)


if __name__ == "__main__":
    main()
