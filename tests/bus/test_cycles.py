"""Cycles in heavy traffic: all of them are found soon, and nothing else is refused."""

from __future__ import annotations

from itertools import pairwise

import pytest

from busd.bus.blocks import MAX_BLOCKS
from busd.bus.cycles import MAX_EDGES, MAX_LENGTH, Traffic
from busd.bus.loops import LoopLimits
from tests.bus.road import BUDGET, SOON, Road, send_round


@pytest.mark.parametrize("length", range(1, MAX_LENGTH + 1))
def test_a_cycle_of_any_length_is_found(length: int) -> None:
    cycle = [f"agent:{number}" for number in range(length)]
    assert BUDGET / 2 < send_round(Road(), cycle, SOON) < SOON


def test_a_cycle_is_found_at_twice_the_budget_and_not_at_half_of_it() -> None:
    both = ["agent:a", "agent:b"]
    second = 60 / BUDGET / 2
    assert send_round(Road(), both, SOON, second / 2) < SOON
    assert send_round(Road(), both, 100 * BUDGET, second * 2) == 100 * BUDGET


def test_one_way_traffic_is_never_refused() -> None:
    road = Road()
    for _ in range(100 * BUDGET):
        road.send("agent:a", "agent:b")
        road.send("agent:c", "agent:b")
        road.send("agent:b", "agent:d")
    assert road.is_free


def test_pipelines_that_share_an_edge_are_never_refused() -> None:
    road = Road()
    for _ in range(20 * BUDGET):
        for one in (["a1", "b", "c", "d1"], ["a2", "b", "c", "d2"], ["d1", "e"], ["d2", "e"]):
            for sender, to in pairwise(one):
                road.send(f"agent:{sender}", f"agent:{to}")
    assert road.is_free


def test_a_little_traffic_back_does_not_make_a_cycle() -> None:
    road = Road()
    for number in range(50 * BUDGET):
        road.clock.now += 0.001  # 60 times the budget there, half of it back
        road.send("agent:a", "agent:b")
        if number % 120 == 0:
            road.send("agent:b", "agent:a")
    assert road.is_free


def test_a_gateway_with_ten_thousand_chats_is_never_refused() -> None:
    """Each of them writes 6 times a minute and is answered: 2,000 messages a second."""
    road = Road()
    for _ in range(20):
        for number in range(10_000):
            road.clock.now += 10 / 10_000
            road.send("gateway", "agent:one-for-all", f"tg:{number}")
            road.send("agent:one-for-all", f"tg:{number}", via="gateway")
    assert road.is_free
    assert len(road.loops._blocks._traffic) <= MAX_EDGES


def test_what_is_streamed_to_one_chat_and_sent_by_another_is_no_cycle() -> None:
    road = Road()
    for _ in range(20 * BUDGET):
        road.send("agent:a", "tg:1", via="gateway")
        road.send("gateway", "agent:a", "tg:2")
    assert road.is_free


def test_a_chat_of_a_gateway_that_answers_itself_is_found() -> None:
    road = Road()
    for number in range(SOON):
        refusal = road.send("gateway", "agent:a", "tg:1")
        road.send("agent:a", "tg:1", via="gateway")
        assert not road.send("gateway", "agent:b", f"tg:{number}")
    assert set(refusal["path"]) == {"tg:1", "agent:a"}


def test_a_message_that_is_forwarded_with_its_sender_is_part_of_the_cycle() -> None:
    road = Road()
    for _ in range(SOON):
        refusal = road.send("bridge", "system:route", "tg:1", via="plugin:bub")
        road.send("plugin:bub", "agent:w", "tg:1")
        road.send("agent:w", "tg:1", via="bridge")
    assert set(refusal["path"]) == {"tg:1", "system:route", "agent:w"}


def test_a_pause_doubles_up_to_five_minutes_and_is_forgotten() -> None:
    road, cycle, pauses = Road(), ["agent:a", "agent:b"], []
    for _ in range(8):
        send_round(road, cycle, SOON)
        pauses.append(road.send(*cycle)["retrySeconds"])
        road.clock.now += pauses[-1]
    assert pauses == [10, 20, 40, 80, 160, 300, 300, 300]
    road.clock.now += 601
    send_round(road, cycle, SOON)
    assert road.send(*cycle)["retrySeconds"] == 10


def test_a_message_costs_one_comparison_until_a_loop_is_known_and_after_it() -> None:
    road, cycle = Road(), ["agent:a", "agent:b"]
    assert send_round(road, cycle, 100) == 100
    assert road.loops.next_number > road.accepted
    send_round(road, cycle, SOON)
    assert road.loops.next_number == 0  # every message is looked at
    road.clock.now += 10
    send_round(road, cycle, 100)
    assert road.loops.next_number > road.accepted


def test_floods_of_names_hide_no_cycle_and_take_no_memory() -> None:
    road = Road()
    for number in range(SOON):
        refusal = road.send("agent:a", "agent:b")
        road.send("agent:b", "agent:a")
        for each in range(50):
            name = f"agent:{number}-{each}"
            assert not road.send(name, f"to:{number}-{each}", via=name)
    assert refusal
    traffic = road.loops._blocks._traffic
    assert len(traffic) <= MAX_EDGES
    assert sum(map(len, traffic._busy.values())) <= MAX_EDGES


def test_many_loops_at_once_are_refused_and_take_no_memory() -> None:
    road = Road(LoopLimits(max_cycle_messages=100))
    for number in range(200):
        assert send_round(road, [f"agent:{number}-a", f"agent:{number}-b"], SOON) < SOON
    blocks = road.loops._blocks
    assert len(blocks._remembered) == MAX_BLOCKS
    assert len(blocks._active) == 2 * MAX_BLOCKS
    assert road.loops.found["loop.budget"] == 200


def test_searches_are_bounded_however_many_edges_are_busy() -> None:
    traffic = Traffic(100, 60.0, 0.0)
    names = [f"agent:{number}" for number in range(45)]
    for _ in range(3):
        for sender in names:
            for to in names:
                if sender < to:
                    traffic.note((sender, "", to), to, 0.0, is_budgeted=True)
    assert 0 <= traffic._steps < 100


def test_days_of_traffic_and_rest_change_nothing() -> None:
    road, cycle = Road(), ["agent:a", "agent:b"]
    for _ in range(3):
        road.clock.now += 30 * 86_400
        assert send_round(road, cycle, 20 * BUDGET, 0.06) == 20 * BUDGET  # half of the budget
        road.clock.now += 3_600
        assert send_round(road, cycle, SOON) < SOON
        road.clock.now += 86_400


def test_seventy_percent_of_the_budget_is_never_taken_for_all_of_it() -> None:
    road = Road(LoopLimits())
    second = 60 / 6_000 / 2 / 0.7
    assert send_round(road, ["agent:a", "agent:b"], 400_000, second) == 400_000
