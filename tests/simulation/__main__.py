"""Run seeds by hand: `python -m tests.simulation --seed 7 --steps 1500`, or with `--mail`."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.ledger import InvariantBroken
from tests.simulation.mail_simulation import simulate_mail
from tests.simulation.simulation import simulate


def main() -> int:
    """Run one seed, or so many from it on; say which one broke an invariant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds")
    parser.add_argument("--steps", type=int, default=1_500, help="steps per seed")
    parser.add_argument("--mail", action="store_true", help="mail on a disk that fails and crashes")
    chosen = parser.parse_args()
    start, messages = time.monotonic(), 0
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        try:
            if chosen.mail:
                messages += len(simulate_mail(seed, chosen.steps).ledger.letters)
            else:
                messages += simulate(seed, chosen.steps).messages
        except InvariantBroken as problem:
            print(problem, file=sys.stderr)
            return 1
    seconds = time.monotonic() - start
    print(f"{chosen.seeds} seeds, {messages} messages, {seconds:.1f} s: nothing to complain of")
    return 0


if __name__ == "__main__":
    sys.exit(main())
