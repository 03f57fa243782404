"""Run the crash tests at full length: `python -m tests.crash --kills 200 --seed 1`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import get_args

from tests.crash.counting import run_counting
from tests.crash.faults import MOMENTS, faults_at, run_faults
from tests.crash.kills import run_kills
from tests.crash.rolling import run_rolling
from tests.daemons import Loop

_PARTS = ("kills", "writes", "count", "rolling")


def main() -> None:
    """Print, for each loop and part, what happened and how long it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="kill -9 at random moments")
    parser.add_argument("--writes", type=int, default=40, help="kill at each of so many writes")
    parser.add_argument("--messages", type=int, default=100_000, help="to count exactly once")
    parser.add_argument("--restarts", type=int, default=50, help="while they are counted")
    parser.add_argument("--rolling", type=int, default=10, help="graceful restarts under load")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=_PARTS, action="append", help="all by default")
    loops = get_args(Loop)
    parser.add_argument("--loop", choices=loops, action="append", help="uvloop by default")
    chosen = parser.parse_args()
    seed, parts = chosen.seed, chosen.only or _PARTS
    for loop in chosen.loop or ["uvloop"]:
        if "kills" in parts:
            _run(f"{chosen.kills} kills, {loop}", lambda: run_kills(loop, seed, chosen.kills))  # noqa: B023
        if "writes" in parts:
            faults = [*faults_at(range(1, chosen.writes + 1))]
            title = f"kills {', '.join(MOMENTS)} write 1 to {chosen.writes}, {loop}"
            _run(title, lambda: run_faults(loop, seed, faults))  # noqa: B023
        if "count" in parts:
            count = chosen.messages, chosen.restarts
            _run(f"exactly once, {loop}", lambda: run_counting(loop, seed, *count))  # noqa: B023
        if "rolling" in parts:
            for is_durable, flight in ((True, 16), (False, 16), (False, 1)):
                _run_rolling(loop, chosen.rolling, is_durable, flight)


def _run_rolling(loop: Loop, restarts: int, is_durable: bool, flight: int) -> None:
    messages = 20_000
    title = f"graceful restarts, {flight} messages in flight per sender, {loop}"
    _run(
        title,
        lambda: run_rolling(loop, restarts, messages, is_durable=is_durable, flight=flight),
    )


def _run(title: str, part: Callable[[], object]) -> None:
    started = time.monotonic()
    found = part()
    print(f"{title} ({time.monotonic() - started:.0f} s)\n    {found}", flush=True)


if __name__ == "__main__":
    main()
