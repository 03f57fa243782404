"""The pauses between tries."""

from __future__ import annotations

from itertools import islice

from busd.client.connect import pauses

LONGEST_SECONDS = 5.0


def some(count: int) -> list[float]:
    return list(islice(pauses(), count))


def test_pauses_begin_short_and_double_until_they_are_long() -> None:
    longest = 0.05
    for pause in some(50):
        assert longest / 2 <= pause <= longest
        longest = min(longest * 2, LONGEST_SECONDS)
    assert longest == LONGEST_SECONDS


def test_pauses_are_random_so_that_clients_do_not_come_back_all_at_once() -> None:
    last = [some(10)[-1] for _ in range(100)]
    assert len(set(last)) == 100
    assert max(last) - min(last) > LONGEST_SECONDS / 4
