"""The plot: one group of bars per workload, as SVG written by hand."""

from __future__ import annotations

from html import escape
from itertools import groupby

from bench.job import Workload
from bench.results import Outcome, Results

WIDTH = 900
LABEL_WIDTH = 250
BAR_WIDTH = 500
BAR_HEIGHT = 16
LINE_HEIGHT = 22
GROUP_GAP = 44
TITLE = "Medians; black: least to greatest of the rounds; dashed: the bare relay."
COLOURS = {
    "relay": "#8a8f98",
    "busd uvloop": "#1f6feb",
    "busd uvloop+log": "#0a3069",
    "busd uvloop-metrics": "#54aeff",
    "busd asyncio": "#5aa2f5",
    "busd trio": "#2da44e",
    "nats-server": "#d9822b",
    "jetstream": "#d9822b",
    "jetstream+always": "#9a5b12",
    "redis+everysec": "#d1495b",
    "redis+always": "#8c2f3d",
}


def make_plot(results: Results) -> str:
    """The whole plot; each group has its own scale, and a dashed line at the relay's figure."""
    parts = [draw_text(16, 26, TITLE)]
    top = 64
    for workload, group in groupby(results.outcomes, lambda outcome: outcome.row.workload):
        outcomes = [outcome for outcome in group if outcome.samples]
        if outcomes:
            parts += draw_group(results, workload, outcomes, top)
            top += GROUP_GAP + LINE_HEIGHT * len(outcomes)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" '
            f'viewBox="0 0 {WIDTH} {top}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{top}" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def draw_group(
    results: Results, workload: Workload, outcomes: list[Outcome], top: int
) -> list[str]:
    """The bars of one workload under its title."""
    measure = "kib_per_connection" if workload.idle_connections else "server_us"
    unit = "KiB per connection" if workload.idle_connections else "µs of server CPU"
    greatest = max(outcome.figure(measure).high for outcome in outcomes) or 1.0
    scale = BAR_WIDTH / greatest
    parts = [draw_text(16, top, f"{workload.name}: {workload.title} ({unit})", "bold")]
    first = top + 12
    for number, outcome in enumerate(outcomes):
        parts += draw_bar(results, outcome, measure, scale, first + number * LINE_HEIGHT)
    if floor := results.find(workload.name, "relay unix"):
        x = LABEL_WIDTH + floor.figure(measure).median * scale
        bottom = first + len(outcomes) * LINE_HEIGHT - 4
        parts.append(draw_line(x, first - 2, x, bottom, 'stroke="#555" stroke-dasharray="3 3"'))
    return parts


def draw_bar(results: Results, outcome: Outcome, measure: str, scale: float, top: int) -> list[str]:
    """A median as a bar, its spread as a line over the bar's end, and its figures beside it."""
    figure = outcome.figure(measure)
    ratio = results.ratio(outcome, measure)
    middle = top + BAR_HEIGHT / 2
    label = f"{figure.median:.1f}" + (f"  ({ratio:.2f} ×)" if ratio else "")
    end = LABEL_WIDTH + max(figure.high, figure.median) * scale
    return [
        draw_text(LABEL_WIDTH - 8, middle + 4, outcome.row.contender, anchor="end"),
        f'<rect x="{LABEL_WIDTH}" y="{top}" width="{max(figure.median * scale, 0):.1f}" '
        f'height="{BAR_HEIGHT}" fill="{COLOURS[outcome.row.server]}"/>',
        draw_line(
            LABEL_WIDTH + figure.low * scale,
            middle,
            LABEL_WIDTH + figure.high * scale,
            middle,
            'stroke="#111" stroke-width="2"',
        ),
        draw_text(end + 8, middle + 4, label),
    ]


def draw_text(x: float, y: float, text: str, weight: str = "normal", anchor: str = "start") -> str:
    """A piece of text."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-weight="{weight}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )


def draw_line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'
