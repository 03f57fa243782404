"""Many seeds through the real core, and proof that the invariants bite."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.faults import FAULTS, Plant
from tests.simulation.ledger import InvariantBroken
from tests.simulation.oracle import matches
from tests.simulation.simulation import simulate

STEPS = 1_000
SEEDS = range(50)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_invariant_holds_whatever_the_peers_do(seed: int) -> None:
    simulate(seed, STEPS)


def test_a_dozen_seeds_make_everything_happen() -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(100, 112):
        outcomes += simulate(seed, STEPS).ledger.outcomes
    for outcome in (
        "success True",
        "success False",
        "no route",
        "fan-out",
        "to a name that two have",
        "busy",
        "lost",
        "timeout",
        "malformed",
        "payload left out: the acks together are too large",
        "answer after the sender's end",
        "clogged and read on",
        "closed by the bus",
    ):
        assert outcomes[outcome] > 10, f"{outcome}: only {outcomes[outcome]} times"


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_bus_with_a_planted_fault_is_found_out(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(InvariantBroken):
        _simulate_some()


def _simulate_some() -> None:
    for seed in range(5):
        simulate(seed, STEPS)


def test_a_broken_invariant_names_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    FAULTS[0](monkeypatch)
    with pytest.raises(InvariantBroken, match=r"python -m tests\.simulation --seed 3 --steps 400"):
        simulate(3, 400)


def test_the_same_seed_tells_the_same_story() -> None:
    assert simulate(5, 300).story == simulate(5, 300).story


@pytest.mark.parametrize(
    ("pattern", "address", "is_match"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a*", "a", True),
        ("*", "", True),
        ("*a", "ba", True),
        ("?", "", False),
        ("a?c*e", "abcde", True),
        ("a?c*e", "abcd", False),
        ("**a**", "xax", True),
    ],
)
def test_the_oracle_matches_as_globs_do(pattern: str, address: str, is_match: bool) -> None:
    assert matches(pattern, address) is is_match
