"""The tables at the end of a run, in Markdown that also reads well in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from bench.job import Workload
from bench.others import SYNCED
from bench.results import Figure, Outcome, Results
from bench.targets import TARGETS, judge

TRAFFIC = ("server CPU µs", "min–max", "× relay", "acked/s", "p50 µs", "p99 µs", "client CPU µs")
DURABLE = ("server CPU µs", "min–max", "fsync", *TRAFFIC[3:])
MEMORY = ("KiB per connection", "min–max", "× relay")


def make_report(results: Results, notes: list[str], more: str, faults: list[str]) -> str:
    """All tables of a run and `more`, the targets, what failed and what was left out."""
    parts: list[str] = []
    for workload, outcomes in groupby(results.outcomes, lambda outcome: outcome.row.workload):
        parts.append(make_section(results, workload, list(outcomes)))
    parts += [more] if more else []
    verdicts = [judge(results, target) for target in TARGETS]
    parts.append("## Targets\n\n" + make_table(["target", "limit", "measured", ""], verdicts))
    if faults := [*results.faults(), *faults]:
        parts.append("## FAILED\n\n" + "\n".join(f"- {fault}" for fault in faults))
    parts += ["\n".join(f"- {note}" for note in notes)] if notes else []
    return "\n\n".join(parts) + "\n"


def make_section(results: Results, workload: Workload, outcomes: list[Outcome]) -> str:
    """One workload's table."""
    traffic = DURABLE if workload.is_durable else TRAFFIC
    columns = MEMORY if workload.idle_connections else traffic
    make_cells = memory_cells if workload.idle_connections else traffic_cells
    lines = []
    for outcome in outcomes:
        cells = make_cells(results, outcome) if outcome.samples else ["FAILED"]
        cells += [""] * (len(columns) - len(cells))
        # A row that failed in some rounds says so beside what the others gave.
        mark = f" ({len(outcome.faults)} failed)" if outcome.faults else ""
        lines.append((outcome.row.contender + mark, *cells))
    head = [workload.name, *columns]
    return f"## {workload.name}: {workload.title}\n\n{make_table(head, lines)}"


def traffic_cells(results: Results, outcome: Outcome) -> list[str]:
    """The figures of a row of traffic."""
    server = outcome.figure("server_us")
    ratio = format_ratio(results.ratio(outcome))
    synced = SYNCED.get(outcome.row.server, "before the ack")
    return [
        f"{server.median:.2f}",
        format_spread(server),
        synced if outcome.row.workload.is_durable else ratio,
        f"{outcome.figure('acked_per_second').median:,.0f}",
        f"{outcome.figure('p50_us').median:,.0f}",
        f"{outcome.figure('p99_us').median:,.0f}",
        f"{outcome.figure('client_us').median:.2f}",
    ]


def memory_cells(results: Results, outcome: Outcome) -> list[str]:
    """The figures of a row of idle connections."""
    memory = outcome.figure("kib_per_connection")
    ratio = results.ratio(outcome, "kib_per_connection")
    return [f"{memory.median:.2f}", format_spread(memory), format_ratio(ratio)]


def format_spread(figure: Figure) -> str:
    """The least and the greatest value."""
    return f"{figure.low:.2f}–{figure.high:.2f}"


def format_ratio(ratio: float | None) -> str:
    """A ratio, or a dash where there is nothing to compare with."""
    return "–" if ratio is None else f"{ratio:.2f}"


def make_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table with columns as wide as their widest cell, figures to the right."""
    widths = [max(len(line[n]) for line in [head, *lines]) for n in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    rows = [head, rule, *lines]
    return "\n".join(f"| {' | '.join(align(row, widths))} |" for row in rows)


def align(row: Sequence[str], widths: list[int]) -> list[str]:
    """Pad the cells of a row: the first to the left, the others to the right."""
    first = row[0].ljust(widths[0])
    return [first, *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
