"""What one client may send, and what the gateway holds for it."""

from __future__ import annotations

import pytest

from busd.errors import QuotaExceeded
from busd.gateway.limits import (
    FLOOD_SECONDS,
    STRANGER_FRAME_BYTES,
    Allowance,
    Budget,
    Holding,
    Slots,
    cost_of,
)
from busd.gateway.open_sockets import OpenSockets
from busd.gateway.places import Place, Places
from busd.gateway.settings import ClientLimits

KIB = 1024


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Visitor:
    """A connection that notes when it has to go."""

    def __init__(self) -> None:
        self.is_gone = self.has_expired = False

    def give_way(self) -> None:
        self.is_gone = True

    def abort(self) -> None:
        self.is_gone = True

    def expire(self) -> None:
        self.has_expired = True


# Frames per second


def test_so_many_frames_may_come_at_once() -> None:
    allowance = Allowance(10, 5, Clock())
    assert [allowance.charge(1) for _ in range(5)] == [0.0] * 5
    assert allowance.charge(1) == pytest.approx(0.1)


def test_after_a_pause_as_many_may_come_again() -> None:
    clock = Clock()
    allowance = Allowance(10, 5, clock)
    for _ in range(8):
        allowance.charge(1)
    clock.now += 100
    assert [allowance.charge(1) for _ in range(5)] == [0.0] * 5
    assert allowance.charge(1) > 0


def test_who_waits_as_told_sends_at_the_rate() -> None:
    clock = Clock()
    allowance = Allowance(10, 5, clock)
    for _ in range(45):
        clock.now += allowance.charge(1)
    assert clock.now == pytest.approx(4.0)


def test_a_large_frame_costs_as_much_as_several() -> None:
    assert cost_of(0) == 1
    assert cost_of(1024 * KIB) == 65
    clock = Clock()
    allowance = Allowance(50, 200, clock)
    for _ in range(4):
        clock.now += allowance.charge(cost_of(1024 * KIB))
    assert clock.now == pytest.approx(60 / 50)


def test_a_stranger_may_send_one_frame_of_the_largest_size_and_few_others() -> None:
    largest = cost_of(STRANGER_FRAME_BYTES, is_strangers=True)
    allowance = Allowance(50, 200, Clock())
    assert allowance.charge(largest) == 0
    assert allowance.charge(largest) > 2
    assert cost_of(0, is_strangers=True) == 5


def test_only_who_goes_on_for_seconds_is_refused_and_then_quickly() -> None:
    clock = Clock()
    allowance = Allowance(10, 5, clock)
    taken = refused = 0
    while clock.now < FLOOD_SECONDS + 2:
        clock.now += allowance.charge(1)
        taken, refused = taken + (not allowance.is_flooded), refused + allowance.is_flooded
    assert taken == pytest.approx(5 + 10 * FLOOD_SECONDS, abs=2)
    assert refused == pytest.approx(10 * 2 * 10, rel=0.1)
    clock.now += 0.5
    allowance.charge(1)
    assert not allowance.is_flooded


def test_who_sends_a_little_too_much_is_slowed_down_and_hardly_refused() -> None:
    clock = Clock()
    allowance = Allowance(10, 5, clock)
    taken = 0
    for number in range(1_000):
        clock.now = max(clock.now, number / 11)
        clock.now += allowance.charge(1)
        taken += not allowance.is_flooded
    assert taken > 850


def test_what_is_never_refused_stays_at_its_rate() -> None:
    clock = Clock()
    allowance = Allowance(10, 5, clock, refused_cost=1)
    for _ in range(205):
        clock.now += allowance.charge(1)
    assert clock.now == pytest.approx(20.0)


# Bytes


def test_what_is_held_is_counted_for_the_user_and_for_all() -> None:
    everybody = Budget(300 * KIB)
    ann, bob = Budget(200 * KIB, everybody), Budget(200 * KIB, everybody)
    first, second, third = Holding(), Holding(), Holding()
    first.move(ann)
    second.move(ann)
    third.move(bob)
    assert first.hold(150 * KIB)
    assert not second.hold(100 * KIB)
    assert second.hold(0)
    assert ann.used == everybody.used == 150 * KIB
    assert not third.hold(170 * KIB)  # within bob's own, but not within everybody's
    third.hold(0)
    assert first.hold(100 * KIB)  # what shrinks is never refused
    first.move(bob)
    assert (ann.used, bob.used, everybody.used) == (0, 100 * KIB, 100 * KIB)


def test_so_many_may_be_at_it_at_a_time() -> None:
    slots = Slots(2)
    assert [slots.take(), slots.take(), slots.take()] == [True, True, False]
    slots.free()
    assert [slots.take(), slots.take()] == [True, False]


def test_a_little_is_not_counted() -> None:
    budget = Budget(0)
    holding = Holding()
    holding.move(budget)
    assert holding.hold(64 * KIB)
    assert budget.used == 0
    assert not holding.hold(65 * KIB)


# Places


def places(**limits: int) -> Places:
    return Places(ClientLimits(**limits))


def take(hall: Places, user: str, count: int = 1) -> list[Place]:
    return [hall.take(user, Visitor()) for _ in range(count)]


def test_a_user_has_so_many_places() -> None:
    hall = places(clients_per_user=2)
    first, _ = take(hall, "ann", 2)
    with pytest.raises(QuotaExceeded, match="ann has 2 connections already"):
        take(hall, "ann")
    take(hall, "bob", 2)
    first.leave()
    first.leave()
    take(hall, "ann")


def test_there_are_so_many_places_for_users_in_all() -> None:
    hall = places(clients=3)
    one, *_ = take(hall, "ann", 2) + take(hall, "bob")
    with pytest.raises(QuotaExceeded, match="there are 3 connections already"):
        take(hall, "carl")
    take(hall, "")  # strangers have places of their own
    one.leave()
    take(hall, "carl")


def test_the_first_stranger_gives_way_to_the_next() -> None:
    hall = places(unknown_clients=2)
    strangers = [Visitor() for _ in range(4)]
    for visitor in strangers:
        hall.take("", visitor)
    assert [visitor.is_gone for visitor in strangers] == [True, True, False, False]
    assert hall.counts[""] == 2


def test_who_authenticates_takes_a_place_of_the_user() -> None:
    hall = places(unknown_clients=1, clients_per_user=1)
    visitor = Visitor()
    place = hall.take("", visitor)
    place.become("ann")
    place.become("ann")
    take(hall, "")
    assert not visitor.is_gone
    assert dict(hall.counts) == {"ann": 1, "": 1}
    other = hall.take("", Visitor())
    with pytest.raises(QuotaExceeded):
        other.become("ann")
    assert other.user == ""
    place.leave()
    other.become("ann")


def test_nothing_is_left_of_those_who_have_left() -> None:
    hall = places()
    everybody = take(hall, "ann", 3) + take(hall, "bob", 3) + take(hall, "", 3)
    for place in everybody:
        place.leave()
        place.become("carl")
    assert hall.taken == 0
    assert not hall.counts
    assert hall.held_bytes == 0


# Sockets


def test_a_socket_without_a_request_is_closed_after_a_while() -> None:
    clock = Clock()
    sockets = OpenSockets(10, clock)
    silent, asking = Visitor(), Visitor()
    assert sockets.add(silent)
    assert sockets.add(asking)
    sockets.satisfy(asking)
    clock.now = 9
    sockets.sweep()
    assert not silent.has_expired
    clock.now = 10
    sockets.sweep()
    assert silent.has_expired
    assert not asking.has_expired


def test_the_first_that_waits_gives_way_to_the_next() -> None:
    sockets = OpenSockets(10, Clock(), max_waiting=2)
    visitors = [Visitor() for _ in range(4)]
    for visitor in visitors:
        sockets.add(visitor)
    assert [visitor.is_gone for visitor in visitors] == [True, True, False, False]


def test_the_socket_that_was_closed_first_gives_way_to_a_new_one() -> None:
    sockets = OpenSockets(2, Clock())
    first, second, third = Visitor(), Visitor(), Visitor()
    for visitor in (first, second):
        sockets.add(visitor)
        sockets.satisfy(visitor)
    sockets.leave(second)
    assert sockets.add(third)
    assert (first.is_gone, second.is_gone) == (False, True)
    sockets.drop(second)
    assert sockets.count == 2


def test_there_are_so_many_sockets_in_all() -> None:
    sockets = OpenSockets(2, Clock())
    first = Visitor()
    assert sockets.add(first)
    assert sockets.add(Visitor())
    assert not sockets.add(Visitor())
    sockets.remove(first)
    assert sockets.add(Visitor())
