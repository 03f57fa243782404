"""Messages for the bus: in order, until the bus has accepted them."""

from __future__ import annotations

from functools import partial

import pytest

from busd.gateway.store import Store
from busd.gateway.store_limits import StoreLimits
from busd.gateway.stored import Kept, NameTaken, Outgoing, StoreFull
from tests.gateway.store.conftest import OpenWith
from tests.gateway.store.opened import Opened, outgoing, words


def test_messages_are_sent_in_the_order_in_which_they_were_put(store: Opened) -> None:
    session, other = store.create("c1"), store.create("c2")
    first = Outgoing(message_id="z", to="agent:a", payload=b'{"n":1}', number=1, slot=0)
    second = Outgoing(message_id="a", to="system:route", payload=b"\0\xff", number=1, slot=1)
    store.calls.put_outbox(session, first, second)
    store.calls.put_outbox(other, outgoing("z"))
    store.calls.put_outbox(session, outgoing("m"))
    store.close()
    assert store.calls.outbox(session) == [first, second, outgoing("m")]
    assert store.calls.outbox(session, limit=1) == [first]


def test_an_accepted_message_is_deleted_once(store: Opened) -> None:
    session = store.create()
    store.calls.put_outbox(session, outgoing("a"), outgoing("b"))
    removed = store.do(lambda s: [s.remove_outbox(session, "a"), s.remove_outbox(session, "a")])
    assert removed == [True, False]
    assert store.calls.outbox(session) == [outgoing("b")]
    store.calls.put_outbox(session, outgoing("c"))
    assert [each.message_id for each in store.calls.outbox(session)] == ["b", "c"]


def test_words_and_their_messages_are_kept_together_or_not_at_all(open_with: OpenWith) -> None:
    store = open_with(StoreLimits(outbox=2))
    session = store.create()

    def say(s: Store, name: str) -> Kept:
        kept = s.keep(session, words(name))
        s.put_outbox(session, outgoing(f"{session}.{kept.entry.number}.0"))
        return kept

    for name in ("a", "b"):
        store.do(partial(say, name=name))
    with pytest.raises(StoreFull) as caught:
        store.do(lambda s: say(s, "c"))
    assert caught.value.limit == "outbox"
    assert store.names(session) == ["a", "b"]
    store.calls.remove_outbox(session, f"{session}.1.0")
    store.do(lambda s: say(s, "c"))
    sent = [each.message_id for each in store.calls.outbox(session)]
    assert sent == [f"{session}.2.0", f"{session}.3.0"]


def test_a_message_id_is_used_once(store: Opened) -> None:
    session = store.create()
    with pytest.raises(NameTaken):
        store.calls.put_outbox(session, outgoing("a"), outgoing("a"))
    assert store.calls.outbox(session) == []
