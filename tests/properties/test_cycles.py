"""Whatever the traffic: cycles over the budget are found soon, and nothing else is refused."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from busd.bus.cycles import MAX_LENGTH, SAMPLE_EVERY
from busd.bus.loops import LoopLimits
from tests.bus.road import BUDGET, SOON, Road


@given(count=st.integers(2, 10), seed=st.integers(0, 2**32), data=st.data())
def test_traffic_without_a_cycle_is_never_refused(count: int, seed: int, data: Any) -> None:
    pairs = [(low, high) for low in range(count) for high in range(low + 1, count)]
    edges = data.draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=20))
    road, random = Road(LoopLimits(max_cycle_messages=SAMPLE_EVERY)), Random(seed)
    for _ in range(20_000):
        low, high = random.choice(edges)
        road.send(f"agent:{low}", f"agent:{high}")
    assert road.is_free


@given(
    length=st.integers(1, MAX_LENGTH),
    noise=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=10),
    share=st.floats(0, 0.8),
    seed=st.integers(0, 2**32),
)
def test_a_cycle_over_the_budget_is_refused_soon_whatever_goes_on_around_it(
    length: int, noise: list[tuple[int, int]], share: float, seed: int
) -> None:
    road, random = Road(), Random(seed)
    cycle = [f"agent:{number}" for number in range(length)]
    edges = list(pairwise([*cycle, cycle[0]]))
    seconds = 60 / BUDGET / 2 / length  # each edge at twice the budget
    refusal: dict[str, Any] = {}
    for _ in range(SOON):
        for sender, to in edges:
            road.clock.now += seconds
            refusal = refusal or road.send(sender, to)
            while noise and random.random() < share:
                one, other = random.choice(noise)
                # To members of the cycle and from them, but nothing that they get goes back.
                assert not road.send(f"agent:{one + 100}", f"agent:{other}")
                assert not road.send(f"agent:{one}", f"agent:{other + 50}")
        if refusal:
            break
    assert set(refusal["path"]) == set(cycle)
