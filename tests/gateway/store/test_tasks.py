"""Tasks keep what was not changed, and their last updates."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from busd.gateway.conversation import Author, Task, TaskUpdate
from busd.gateway.merge_patch import merge
from busd.gateway.store_limits import StoreLimits
from busd.gateway.stored import MAX_TASK_BYTES, MAX_TASK_UPDATES, StoreFull, Unstorable
from tests.gateway.store.conftest import OpenWith
from tests.gateway.store.opened import Opened

ANN = Author("ann")


def put(store: Opened, session: str, name: str, at: str = "1", **members: Any) -> Task:
    update = TaskUpdate(at, ANN, members.get("status", ""))
    return store.calls.put_task(session, Task(task_id=name, **members), update)


def test_members_that_are_unset_stay_as_they_were(store: Opened) -> None:
    session = store.create()
    put(store, session, "t", title="Build", kind="task", assignees=(Author("a", "agent"),))
    changed = put(store, session, "t", "2", status="in_progress", progress=30.0)
    assert (changed.title, changed.kind, changed.progress) == ("Build", "task", 30.0)
    assert changed.result is UNSET
    assert [each.timestamp for each in changed.history] == ["1", "2"]
    store.close()
    assert store.calls.find_task(session, "t") == changed
    assert store.calls.find_task(session, "unknown") is None


def test_the_history_is_the_stores(store: Opened) -> None:
    session = store.create()
    forged = TaskUpdate("9", Author("eve"))
    assert put(store, session, "t", history=(forged,)).history == (TaskUpdate("1", ANN),)


def test_the_last_updates_are_kept(store: Opened) -> None:
    session = store.create()
    for number in range(MAX_TASK_UPDATES + 5):
        task = put(store, session, "t", str(number))
    assert [each.timestamp for each in task.history] == [
        str(number) for number in range(5, MAX_TASK_UPDATES + 5)
    ]


def test_two_votes_both_count(store: Opened) -> None:
    session = store.create()
    put(store, session, "poll", data=Raw(b'{"votes":{},"question":"?","draft":true}'))
    put(store, session, "poll", data=Raw(b'{"votes":{"ann":"yes"}}'))
    task = put(store, session, "poll", data=Raw(b'{"votes":{"ben":"no"},"draft":null}'))
    assert isinstance(task.data, Raw)
    assert msgspec.json.decode(task.data) == {
        "votes": {"ann": "yes", "ben": "no"},
        "question": "?",
    }


def test_tasks_are_listed_in_the_order_of_their_last_change(store: Opened) -> None:
    session = store.create()
    for name in ("a", "b", "c", "a"):
        store.now += 1
        put(store, session, name, title="x" * 1000)
    listed = store.do(lambda s: [s.tasks(session), s.tasks(session, max_bytes=2500)])
    assert [[each.task_id for each in tasks] for tasks in listed] == [["b", "c", "a"], ["c", "a"]]


def test_a_task_that_has_ended_makes_room_for_a_new_one(open_with: OpenWith) -> None:
    store = open_with(StoreLimits(tasks=3))
    session = store.create()
    for name in ("a", "b", "c"):
        store.now += 1
        put(store, session, name)
    with pytest.raises(StoreFull) as caught:
        put(store, session, "d", status="done")
    assert caught.value.limit == "tasks"
    put(store, session, "b", status="Completed")
    store.now += 1
    put(store, session, "a", progress=100.0)
    put(store, session, "d")
    assert {each.task_id for each in store.calls.tasks(session)} == {"a", "c", "d"}
    put(store, session, "c", status="in_progress")  # no new one


def test_data_that_cannot_be_merged_are_refused(store: Opened) -> None:
    session = store.create()
    before = put(store, session, "t", data=Raw(b'{"a":1}'))
    for bad in (b"{no json", b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b'{"a":' * 5_000):
        with pytest.raises(Unstorable):
            put(store, session, "t", data=Raw(bad))
    assert store.calls.find_task(session, "t") == before


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(old=values, patch=values)
def test_objects_are_merged_as_rfc_7396_says(old: Any, patch: Any) -> None:
    merged = merge(Raw(msgspec.json.encode(old)), Raw(msgspec.json.encode(patch)))
    assert msgspec.json.decode(merged) == _merge_patch(old, patch)


def _merge_patch(target: Any, patch: Any) -> Any:
    """The pseudocode of RFC 7396, section 2."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = _merge_patch(target.get(name), value)
    return target


def test_a_task_has_a_limit_and_stays_as_it_was(store: Opened) -> None:
    session = store.create()
    half = b'"%s"' % (b"x" * (MAX_TASK_BYTES // 2))
    put(store, session, "t", data=Raw(b'{"a": %s}' % half))
    with pytest.raises(StoreFull) as caught:
        put(store, session, "t", data=Raw(b'{"b": %s}' % half))
    assert caught.value.limit == "task_bytes"
    found = store.calls.find_task(session, "t")
    assert found is not None
    assert b'"b"' not in bytes(found.data)  # type: ignore[arg-type]
