"""Hops: the chains that are remembered are bounded, and a busy pair does not hide a slow loop."""

from __future__ import annotations

import tracemalloc

from busd.bus.hops import MAX_BYTES, MAX_PATH, MAX_SECONDS, Hops, Link, first_link

EMOJI = "\N{GRINNING FACE}"


def add(hops: Hops, message_id: str, receiver: str, now: float = 0.0) -> None:
    hops.add(message_id, [receiver], first_link(1, "agent:a", now))


def test_a_link_knows_the_latest_senders() -> None:
    link = first_link(1, "agent:0", 0.0)
    sizes = {MAX_PATH: 0, MAX_PATH + 50: 0}
    for number in range(1, MAX_PATH + 50):
        link = link.next(f"agent:{number % 10}", 0.0)
        if link.hops in sizes:
            sizes[link.hops] = link.size
    assert (link.hops, len(link.path)) == (MAX_PATH + 50, MAX_PATH)
    assert link.path[-1] == f"agent:{(MAX_PATH + 49) % 10}"
    assert len(set(sizes.values())) == 1


def test_a_cause_is_forgotten_after_an_hour() -> None:
    hops = Hops()
    add(hops, "m1", "agent:b")
    assert hops.find("m1", "agent:b", MAX_SECONDS - 1) is not None
    assert hops.find("m1", "agent:b", MAX_SECONDS) is None


def test_quiet_receivers_are_forgotten_when_others_write() -> None:
    hops = Hops()
    for number in range(100):
        add(hops, "m", f"agent:{number}", 0.0)
    for number in range(100):
        add(hops, f"m{number}", "agent:new", MAX_SECONDS)
    assert len(hops) == 100
    assert hops.find("m99", "agent:new", MAX_SECONDS) is not None


def test_a_busy_pair_forgets_its_own_messages_and_not_those_of_others() -> None:
    hops = Hops()
    for number in range(200):
        add(hops, f"m{number}", "agent:slow")
    for number in range(100_000):
        add(hops, f"n{number}", "agent:busy")
    assert all(hops.find(f"m{number}", "agent:slow", 0.0) for number in range(200))
    assert hops.find("n99999", "agent:busy", 0.0) is not None
    assert hops.find("n0", "agent:busy", 0.0) is None
    assert hops.bytes <= MAX_BYTES


def test_the_latest_message_of_an_id_counts() -> None:
    hops = Hops()
    link = first_link(1, "agent:a", 0.0)
    for _ in range(10):
        hops.add("same", ["agent:b", "agent:b"], link)
        link = link.next("agent:a", 0.0)
    found = hops.find("same", "agent:b", 0.0)
    assert found is not None
    assert (found.hops, len(hops)) == (10, 1)


def test_an_empty_table_counts_no_bytes() -> None:
    hops = Hops()
    for number in range(20_000):
        hops.add(f"m{number}", [f"agent:{number % 7}", f"tg:{number}"], first_link(1, "a", 0.0))
    add(hops, "last", "agent:last", MAX_SECONDS)
    for _ in range(20_000):
        add(hops, "last", "agent:last", MAX_SECONDS)
    only = Hops()
    add(only, "last", "agent:last", MAX_SECONDS)
    assert hops.bytes == only.bytes


def test_floods_of_long_names_and_ids_take_no_more_memory_than_is_counted() -> None:
    hops = Hops()
    tracemalloc.start()
    links: dict[int, Link] = {}
    try:
        for number in range(6_000):
            name = f"{number}{EMOJI * 245}"
            before = links.pop(number - 50, None)
            link = before.next(name, 0.0) if before else first_link(1, name, 0.0)
            links[number] = link
            hops.add(f"{number}{EMOJI * 250}", [name], link)
        links.clear()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert hops.bytes <= MAX_BYTES
    assert taken < MAX_BYTES * 1.2
