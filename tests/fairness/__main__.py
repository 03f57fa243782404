"""Run every flood against real daemons: `python -m tests.fairness --loop trio`."""

from __future__ import annotations

import argparse
from typing import get_args

from tests.daemons import Loop, open_daemon
from tests.fairness.floods import FLOODS
from tests.fairness.pair import Waits, measure


def main() -> None:
    """Print, for each loop and flood, how long the messages of a bystander pair took."""
    parser = argparse.ArgumentParser(description=__doc__)
    loops = get_args(Loop)
    parser.add_argument("--loop", action="append", choices=loops, help="all three by default")
    parser.add_argument("--only", default="", help="floods with this in their name")
    chosen = parser.parse_args()
    for loop in chosen.loop or loops:
        print(f"\n{loop:36} {'longest':>10} {'p99':>10} {'median':>10} messages", flush=True)
        with open_daemon(loop, log_level="error") as daemon:
            daemon.is_blamed = True  # this measures; faults are for the tests to find
            _print("(no flood)", measure(daemon, None, 2))
            for flood in FLOODS:
                if chosen.only in flood.name:
                    _print(flood.name, measure(daemon, flood))


def _print(name: str, waits: Waits) -> None:
    times = " ".join(f"{each * 1e3:7.1f} ms" for each in (waits.longest, waits.p99, waits.median))
    print(f"{name:36} {times} {waits.count:8}", flush=True)


if __name__ == "__main__":
    main()
