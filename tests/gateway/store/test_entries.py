"""Entries are kept once, in order, amended, and read by some."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from msgspec import Raw

from busd.gateway.conversation import Attachment, Author, AuthorType, Entry, Kind
from busd.gateway.store import Store
from busd.gateway.stored import Kept, Unstorable
from tests.gateway.store.opened import Opened, words

EVERYTHING = Entry(
    id="é\0語",
    text="嗨 🙂",
    author=Author("ann", "user", "Ann"),
    timestamp="2026-01-01T00:00:00Z",
    kind=Kind.REPLY,
    type="image",
    dialect="tkr",
    turn="t",
    to=("a", "b"),
    reply_to="x",
    thread_id="th",
    prompt_id="p",
    attachments=(Attachment("image", url="https://x/y", size=7, extra=Raw(b'{"k":1.50}')),),
    mentions=(Author("a", "agent"),),
    metadata=Raw(b'{"a":null}'),
    original=Raw(b'{"id":"1","n":1e3}'),
)


def test_an_entry_is_kept_with_all_its_members(store: Opened) -> None:
    session = store.create()
    kept = store.calls.keep(session, EVERYTHING)
    store.close()
    found = store.calls.find_entry(session, "é\0語")
    assert found
    assert kept == Kept(found, False)
    assert found.number == 1
    assert {**_plain(found), "number": 0} == _plain(EVERYTHING)


def test_entries_have_ascending_numbers_in_each_conversation(store: Opened) -> None:
    first, second = store.create("c1"), store.create("c2")
    assert store.keep(first, words("a"), words("b")) == [1, 2]
    assert store.keep(second, words("a")) == [1]
    assert store.keep(first, words("c")) == [3]
    assert (store.names(first), store.names(second)) == (["a", "b", "c"], ["a"])


def test_the_number_of_a_caller_does_not_matter(store: Opened) -> None:
    session = store.create()
    assert store.keep(session, words("a", number=70), words("b")) == [1, 2]


def test_an_entry_with_a_known_id_is_a_duplicate(store: Opened) -> None:
    session = store.create()
    first = store.calls.keep(session, words("a", "first"))
    again = store.calls.keep(session, words("a", "second"))
    assert again == Kept(first.entry, True)
    assert store.keep(session, words("b")) == [2]


def test_a_redelivered_message_of_the_bus_is_a_duplicate(store: Opened) -> None:
    session, other = store.create("c1"), store.create("c2")
    first = store.calls.keep(session, words("a"), origin="agent:a|7")
    assert store.calls.keep(session, words("b"), origin="agent:a|7") == Kept(first.entry, True)
    assert not store.calls.keep(session, words("c"), origin="agent:b|7").is_duplicate
    assert not store.calls.keep(other, words("a"), origin="agent:a|7").is_duplicate
    assert store.calls.find_origin(session, "agent:a|7") == first.entry
    assert store.calls.find_origin(session, "agent:a|8") is None


def test_entries_without_an_origin_are_no_duplicates_of_each_other(store: Opened) -> None:
    session = store.create()
    assert store.keep(session, words("a"), words("b")) == [1, 2]


def test_an_entry_needs_an_id(store: Opened) -> None:
    session = store.create()
    with pytest.raises(ValueError, match="without an id"):
        store.keep(session, words(""))


def test_an_amended_entry_keeps_its_place(store: Opened) -> None:
    session = store.create()
    store.keep(session, words("a", timestamp="then"), words("b"))
    amended = store.calls.amend(session, words("a", "new", number=9))
    assert amended == words("a", "new", number=1, timestamp="then")
    assert store.calls.find_entry(session, "a") == amended
    assert store.names(session) == ["a", "b"]
    assert store.calls.amend(session, words("unknown")) is None
    later = store.calls.amend(session, words("a", timestamp="later"))
    assert later
    assert later.timestamp == "later"


@pytest.mark.parametrize(
    "members",
    [
        {"author": Author("a", cast("AuthorType", "robot"))},
        {"metadata": Raw(b"{no json")},
        {"metadata": Raw(b'"\xff"')},
        {"metadata": Raw(b"[" * 970 + b"]" * 970)},
        {"metadata": Raw(b"[" * 10**6)},
        {"text": "\ud800"},
    ],
    ids=["type", "json", "utf-8", "deep", "deeper", "surrogate"],
)
def test_what_could_not_be_read_again_is_refused(store: Opened, members: Any) -> None:
    session = store.create()
    store.keep(session, words("a"))
    with pytest.raises(Unstorable):
        store.keep(session, Entry(id="b", **members))
    with pytest.raises(Unstorable):
        store.calls.amend(session, Entry(id="a", **members))
    assert store.keep(session, words("c")) == [2]
    assert store.names(session) == ["a", "c"]


def test_what_is_nested_as_deeply_as_possible_can_be_read_again(store: Opened) -> None:
    session = store.create()
    for depth in range(900, 1000):
        deep = Entry(id=str(depth), metadata=Raw(b"[" * depth + b"]" * depth))
        try:
            store.keep(session, deep)
        except Unstorable:
            break

    def read_deeper(s: Store, frames: int) -> int:
        return read_deeper(s, frames - 1) if frames else len(s.page(session, last=999).entries)

    assert store.do(lambda s: read_deeper(s, 20)) > 10


def test_a_read_receipt_is_kept_once(store: Opened) -> None:
    session = store.create()
    store.keep(session, words("a"), words("b"), words("c"))
    marked = [
        store.calls.mark_read(session, ids, "ben", at)
        for ids, at in ((["a", "b", "unknown", "a"], "1"), (["b", "c"], "2"))
    ]
    assert marked == [["a", "b"], ["c"]]
    store.calls.mark_read(session, ["a"], "eve", "3")
    readers = store.calls.readers(session, ["c", "a", "unknown"])
    assert readers == {"a": {"ben": "1", "eve": "3"}, "c": {"ben": "2"}}


def test_an_entry_that_nobody_has_read_has_no_readers(store: Opened) -> None:
    session, other = store.create("c1"), store.create("c2")
    store.keep(session, words("a"))
    store.keep(other, words("a"))
    store.calls.mark_read(other, ["a"], "ben", "1")
    assert store.calls.readers(session, ["a"]) == {"a": {}}


def test_readers_are_limited(store: Opened) -> None:
    session = store.create()
    store.keep(session, words("a"), words("b"))
    store.do(lambda s: [s.mark_read(session, ["a", "b"], f"u{n}", "1") for n in range(30)])
    found = store.calls.readers(session, ["a", "b"], limit=40)
    assert {name: len(readers) for name, readers in found.items()} == {"a": 30, "b": 10}


def _plain(entry: Entry) -> dict[str, Any]:
    """Return an entry with its JSON decoded: Raw compares by identity."""
    values = {name: getattr(entry, name) for name in entry.__struct_fields__}
    values["metadata"] = json.loads(bytes(cast("Raw", entry.metadata)))
    values["original"] = bytes(cast("Raw", entry.original))
    values["attachments"] = [
        (each.kind, each.url, each.size, bytes(cast("Raw", each.extra)))
        for each in entry.attachments
    ]
    return values
