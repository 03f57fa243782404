"""Many seeds of mail on a disk that fails and crashes, and proof that the invariants bite."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.ledger import InvariantBroken
from tests.simulation.mail_faults import FAULTS, Plant
from tests.simulation.mail_simulation import simulate_mail

STEPS = 300
SEEDS = range(24)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_that_was_accepted_is_lost_or_repeated_unnoticed(seed: int) -> None:
    simulate_mail(seed, STEPS)


def test_a_dozen_seeds_make_everything_happen_to_mail() -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(100, 112):
        outcomes += simulate_mail(seed, STEPS).ledger.outcomes
    for outcome in (
        "kept",
        "handed over again",
        "acked",
        "refused",
        "expired",
        "retrying",
        "duplicate",
        "key reused",
        "plain",
        "no route",
        "mail.busy",
        "mail.failed",
        "mail.box_count",
        "mail.total_count",
    ):
        assert outcomes[outcome] > 0, f"{outcome} never happened: {outcomes}"


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_mailboxes_with_a_planted_fault_are_found_out(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(InvariantBroken):
        _simulate_some()


def _simulate_some() -> None:
    for seed in range(200, 240):
        simulate_mail(seed, STEPS)


def test_the_same_seed_tells_the_same_story_of_mail() -> None:
    assert story(5) == story(5)


def story(seed: int) -> list[str]:
    """Return what happened; the ids that the bus makes up differ."""
    return [line.split("msg_")[0] for line in simulate_mail(seed, 200).story]
