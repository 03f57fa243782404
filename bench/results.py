"""What the rounds of each row gave: medians, spreads, and ratios to the floor."""

from __future__ import annotations

from statistics import median

import msgspec

from bench.job import Sample
from bench.plan import FLOOR, Row


class Figure(msgspec.Struct, frozen=True):
    """A median and the least and greatest value it was taken from."""

    median: float
    low: float
    high: float


class Outcome(msgspec.Struct):
    """One row's samples by round, and whatever went wrong."""

    row: Row
    samples: dict[int, Sample] = {}
    faults: list[str] = []

    def figure(self, measure: str) -> Figure:
        """The spread of one measure, by the name of its member of `Sample`."""
        values = [getattr(sample, measure) for sample in self.samples.values()]
        return Figure(median(values), min(values), max(values))


class Results:
    """The outcomes of a whole run."""

    def __init__(self, rows: list[Row]) -> None:
        self.outcomes = [Outcome(row) for row in rows]
        # Servers that were found dead when no row was there to notice.
        self.deaths: list[str] = []

    def find(self, workload: str, contender: str) -> Outcome | None:
        """The outcome of one row, if it was measured."""
        for outcome in self.outcomes:
            row = outcome.row
            if row.workload.name == workload and row.contender == contender and outcome.samples:
                return outcome
        return None

    def ratio(self, outcome: Outcome, measure: str = "server_us", to: str = FLOOR) -> float | None:
        """How many times another contender's figure: the median of the rounds' own ratios."""
        other = self.find(outcome.row.workload.name, to)
        if other is None:
            return None
        # Round by round: what else the machine did in a round weighs on both figures alike.
        ratios = [
            getattr(sample, measure) / getattr(other.samples[number], measure)
            for number, sample in outcome.samples.items()
            if number in other.samples
        ]
        return median(ratios) if ratios else None

    def faults(self) -> list[str]:
        """Everything that went wrong, with the row it happened in."""
        faults = [f"{o.row.name}: {fault}" for o in self.outcomes for fault in o.faults]
        return faults + self.deaths
