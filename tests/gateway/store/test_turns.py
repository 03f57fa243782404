"""Turns and prompts are open until they end, and remembered for a while."""

from __future__ import annotations

import msgspec
import pytest

from busd.gateway.conversation import Option
from busd.gateway.store_limits import StoreLimits
from busd.gateway.stored import MAX_CLOSED_PROMPTS, MAX_ENDED_TURNS, StoreFull
from tests.gateway.store.conftest import OpenWith
from tests.gateway.store.opened import NOW, Opened, open_prompt, open_turn


def test_open_turns_survive_a_restart(store: Opened) -> None:
    session, other = store.create("c1"), store.create("c2")
    turns = [open_turn("b"), open_turn("a", 1), open_turn("a", 0)]
    turns[0].turn.text = "so far"
    turns[0].to = "agent:b"
    for turn in turns:
        store.calls.put_turn(session, turn)
    store.close()
    assert store.calls.turns(session) == turns
    assert {(each.began, each.last_sign) for each in turns} == {(NOW, NOW)}
    assert store.calls.turns(other) == []


def test_a_turn_that_is_put_again_keeps_its_place(store: Opened) -> None:
    session = store.create()
    for name in ("a", "b"):
        store.calls.put_turn(session, open_turn(name))
    [first, _] = store.calls.turns(session)
    first.turn.agent = msgspec.structs.replace(first.turn.agent, id="known now")
    first.last_sign = NOW + 5
    store.calls.put_turn(session, first)
    found = store.calls.turns(session)
    assert [each.turn.id for each in found] == ["a", "b"]
    assert (found[0].turn.agent.id, found[0].last_sign) == ("known now", NOW + 5)


def test_a_turn_ends_once_and_closes_its_prompts(store: Opened) -> None:
    session = store.create()
    for slot in (0, 1):
        store.calls.put_turn(session, open_turn("t", slot))
    for name, slot in (("p1", 0), ("p2", 1), ("p3", 0)):
        store.calls.put_prompt(session, open_prompt(name, slot=slot))
    ended = store.do(lambda s: [s.end_turn(session, "t"), s.end_turn(session, "t")])
    assert ended == [[open_prompt(name).prompt for name in ("p1", "p3")], None]
    assert [each.prompt.id for each in store.calls.prompts(session)] == ["p2"]
    assert [each.slot for each in store.calls.turns(session)] == [1]
    assert store.calls.knows_prompt(session, "p1")


def test_how_a_turn_ended_is_remembered(store: Opened) -> None:
    session = store.create()
    for slot, how in enumerate(("cancelled", "failed", "")):
        store.calls.put_turn(session, open_turn("t", slot))
        store.calls.end_turn(session, "t", slot, how)
    store.calls.put_turn(session, open_turn("open"))
    assert store.calls.how_ended(session, "t") == [
        (0, "cancelled"),
        (1, "failed"),
        (2, ""),
    ]
    assert store.calls.how_ended(session, "t", 1) == [(1, "failed")]
    assert store.calls.how_ended(session, "open") == []
    store.calls.put_turn(session, open_turn("t", 1))  # open again
    assert store.calls.how_ended(session, "t", 1) == []
    assert [each.turn.id for each in store.calls.turns(session)] == ["t", "open"]


def test_the_turns_that_ended_last_are_remembered(store: Opened) -> None:
    session = store.create()
    store.calls.put_turn(session, open_turn("long"))
    for number in range(MAX_ENDED_TURNS):
        store.calls.put_turn(session, open_turn(f"t{number}"))
        store.calls.end_turn(session, f"t{number}", how="replied")
    store.calls.end_turn(session, "long", how="cancelled")
    assert store.calls.how_ended(session, "long") == [(0, "cancelled")]
    assert store.calls.how_ended(session, "t0") == []
    assert store.calls.how_ended(session, "t1") == [(0, "replied")]
    assert store.select("SELECT count(*) FROM turn") == [(MAX_ENDED_TURNS,)]


def test_open_turns_are_limited(open_with: OpenWith) -> None:
    store = open_with(StoreLimits(open_turns=2))
    session = store.create()
    for name in ("a", "b", "b"):
        store.calls.put_turn(session, open_turn(name))
    with pytest.raises(StoreFull) as caught:
        store.calls.put_turn(session, open_turn("c"))
    assert caught.value.limit == "open_turns"
    assert [each.turn.id for each in store.calls.turns(session)] == ["a", "b"]
    store.calls.end_turn(session, "a")
    store.calls.put_turn(session, open_turn("c"))


def test_a_prompt_survives_a_restart_with_its_options_and_its_end(store: Opened) -> None:
    session = store.create()
    prompt = open_prompt("p")
    prompt.prompt.options = (Option("1", "Ja", "yes", "d"), Option("2", "Nein", "no"))
    assert store.calls.put_prompt(session, prompt)
    store.close()
    assert store.calls.prompts(session) == [prompt]


def test_a_prompt_is_closed_once(store: Opened) -> None:
    session, other = store.create("c1"), store.create("c2")
    store.calls.put_prompt(session, open_prompt("p"))
    assert store.calls.close_prompt(other, "p") is None
    closed = store.do(lambda s: [s.close_prompt(session, "p"), s.close_prompt(session, "p")])
    assert closed == [open_prompt("p"), None]
    assert store.calls.prompts(session) == []
    known = store.do(lambda s: [s.knows_prompt(each, "p") for each in (session, other)])
    assert known == [True, False]


def test_a_prompt_is_replaced_by_its_own_turn_only(store: Opened) -> None:
    session = store.create()
    put = [
        store.calls.put_prompt(session, prompt)
        for prompt in (open_prompt("p"), open_prompt("p", "other"), open_prompt("p", slot=1))
    ]
    assert put == [True, False, False]
    new = open_prompt("p")
    new.prompt.text = "Really?"
    assert store.calls.put_prompt(session, new)
    assert store.calls.prompts(session) == [new]


def test_a_closed_prompt_is_open_again_only_if_that_is_wanted(store: Opened) -> None:
    session = store.create()
    store.calls.put_prompt(session, open_prompt("p"))
    store.calls.close_prompt(session, "p")
    assert not store.calls.put_prompt(session, open_prompt("p"))
    assert not store.calls.put_prompt(session, open_prompt("p", "other"), reopens=True)
    assert store.calls.prompts(session) == []
    assert store.calls.put_prompt(session, open_prompt("p"), reopens=True)
    assert store.calls.prompts(session) == [open_prompt("p")]


def test_the_prompts_that_were_closed_last_are_remembered(store: Opened) -> None:
    session = store.create()
    store.calls.put_prompt(session, open_prompt("long"))
    for number in range(MAX_CLOSED_PROMPTS):
        store.calls.put_prompt(session, open_prompt(f"p{number}"))
        store.calls.close_prompt(session, f"p{number}")
    store.calls.close_prompt(session, "long")
    known = [store.calls.knows_prompt(session, name) for name in ("long", "p0", "p1", "p99")]
    assert known == [True, False, True, True]


def test_open_prompts_are_limited(open_with: OpenWith) -> None:
    store = open_with(StoreLimits(open_prompts=2))
    session = store.create()
    store.do(lambda s: [s.put_prompt(session, open_prompt(name)) for name in ("a", "b", "b")])
    with pytest.raises(StoreFull) as caught:
        store.calls.put_prompt(session, open_prompt("c"))
    assert caught.value.limit == "open_prompts"
    store.calls.close_prompt(session, "a")
    assert store.calls.put_prompt(session, open_prompt("c"))
