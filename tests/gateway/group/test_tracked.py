"""Tasks, polls, decisions and handoffs: messages that show their state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from busd.gateway import Author, ChangeTask, Post, Say, Task, TaskChanged
from busd_plugins.group.tracked import find_option, labels, options_of
from tests.gateway.group.hall import Hall, Json
from tests.gateway.group.said import LI, ZHANG, message, of_type

SCRIBE = {"id": "scribe", "type": "agent", "name": "书记员"}


def changes(effects: list[Any]) -> list[ChangeTask]:
    return [effect for effect in effects if isinstance(effect, ChangeTask)]


def state(frame: Json) -> tuple[object, object, int]:
    payload = frame["payload"]
    return payload["status"], payload["progress"], len(payload["update_history"])


def test_a_task_without_an_id_has_that_of_its_message() -> None:
    hall = Hall()
    client = hall.open()
    client.send(message("task", "做", message_id="m1"))
    client.send(message("task", "也做"))
    first, second = hall.tasks
    assert first == "m1"
    assert second == hall.entries[1].id


def test_a_task_for_people_starts_no_agent() -> None:
    hall = Hall(members=("user123", "user124"))
    client = hall.open("user123")
    client.send(message("task", "打扫", assignees=[LI]))
    say, change = client.effects
    assert isinstance(say, Say)
    assert isinstance(change, ChangeTask)
    assert say.agents is None
    assert change.agents is None


@pytest.mark.parametrize(
    ("kind", "member"),
    [("poll", "question"), ("task", "title"), ("decision", "description"), ("handoff", "reason")],
)
def test_what_is_tracked_has_words_also_without_a_text(kind: str, member: str) -> None:
    hall = Hall()
    client = hall.open()
    client.send(message(kind, message_id="m1", **{member: "喝茶吗？"}))
    [entry] = hall.entries
    assert entry.text == "喝茶吗？"
    assert hall.tasks["m1"].title == "喝茶吗？"
    [frame] = [each for each in client.frames if each["message_type"] == kind]
    assert "text" not in frame["payload"]
    assert frame["payload"][member] == "喝茶吗？"


def test_an_assignee_may_be_named_in_short() -> None:
    hall = Hall()
    client = hall.open()
    client.send(message("task", "做", assignees=["agent:scribe", "user124"]))
    assert hall.tasks.popitem()[1].assignees == (
        Author("scribe", "agent", "scribe"),
        Author("user124", "user", "user124"),
    )


def test_an_update_changes_the_task_and_is_shown_once_to_everybody() -> None:
    hall = Hall()
    client, other = hall.open(), hall.open()
    client.send(message("task", "做", task_id="t", assignees=[SCRIBE]))
    other.frames.clear()
    frames = client.send(message("task_update", "一半了", task_id="t", progress=50, 心情="好"))
    change, post = client.effects
    assert isinstance(change, ChangeTask)
    assert isinstance(post, Post)
    assert (change.task.progress, change.agents, change.action) == (50, ("scribe",), "updated")
    assert len(frames) == len(other.frames) == 1
    assert state(frames[0]) == ("pending", 50, 2)
    assert frames[0]["payload"]["心情"] == "好"
    assert frames[0]["payload"]["update_history"][1] == {
        "timestamp": "2023-11-01T12:00:00.000Z",
        "updated_by": ZHANG,
        "progress": 50,
    }


def test_who_comes_later_sees_a_task_as_it_is_now_and_updates_as_they_were() -> None:
    hall = Hall()
    client = hall.open()
    client.send(message("task", "做", task_id="t"))
    client.send(message("task_update", task_id="t", progress=50))
    client.send(message("task_update", task_id="t", progress=100, status="completed", result=[7]))
    later = hall.open().frames
    (task,) = of_type(later, "task")
    assert state(task) == ("completed", 100, 3)
    assert task["payload"]["result"] == [7]
    updates = of_type(later, "task_update")
    assert [(u["payload"]["status"], u["payload"]["progress"]) for u in updates] == [
        ("completed", 100),
        ("pending", 50),
    ]


def test_a_task_that_is_cancelled_is_cancelled_for_its_agents() -> None:
    hall = Hall()
    client = hall.open()
    client.send(message("task", "做", task_id="t", assignees=[SCRIBE]))
    client.send(message("task_update", task_id="t", status="cancelled"))
    assert changes(client.effects)[0].action == "cancelled"


def test_an_agents_task_is_shown_as_one() -> None:
    hall = Hall()
    client = hall.open()
    by = Author("scribe", "agent", "书记员")
    task = Task(task_id="t", title="画图", status="in_progress", progress=12.5, kind="decision")
    hall.show(hall.change_task(task, by, "created"))
    frame = client.frames[-1]
    assert frame["message_type"] == "decision"
    assert frame["sender"] == SCRIBE
    assert frame["payload"]["text"] == "画图"
    assert state(frame) == ("in_progress", 12.5, 1)
    hall.show(hall.change_task(Task(task_id="t", status="cancelled"), by, "cancelled"))
    frame = client.frames[-1]
    assert frame["message_type"] == "task_update"
    assert (frame["payload"]["text"], frame["payload"]["title"]) == ("任务已取消", "画图")


def test_a_task_with_data_that_are_no_object_is_shown() -> None:
    client = Hall().open()
    task = Task(task_id="t", data=Raw(b"[1]"), kind="某种")
    client.show(TaskChanged("group123", task, "created", Author("tom"), False, "tkr"))
    assert client.frames[-1]["message_type"] == "task"


def test_a_message_that_names_a_known_task_changes_it() -> None:
    hall = Hall()
    client = hall.open()
    client.send(message("decision", "去海边", decision_id="d"))
    client.send(message("decision", "同意", decision_id="d", status="approved", sender=LI))
    assert [type(effect) for effect in client.effects] == [ChangeTask, Post]
    assert hall.tasks["d"].status == "approved"


# Polls


def test_votes_are_counted_for_each_voter_once() -> None:
    hall = Hall()
    client, other = hall.open(), hall.open()
    (shown, *_) = client.send(message("poll", "去哪儿？", poll_id="p", options=["海边", "山上"]))
    assert state(shown) == ("in_progress", 0, 0)
    client.send(message("poll", poll_id="p", vote="海边"))
    other.send(message("poll", poll_id="p", vote="海边", sender=LI))
    shown = other.send(message("poll", poll_id="p", vote="山上", sender=LI))[-1]
    assert shown["payload"]["results"] == {"海边": ["user123"], "山上": ["user124"]}
    assert shown["payload"]["total_votes"] == 2
    (poll,) = [f for f in of_type(hall.open().frames, "poll") if "options" in f["payload"]]
    assert poll["payload"]["results"] == {"海边": ["user123"], "山上": ["user124"]}


def test_a_vote_tells_no_agent() -> None:
    hall = Hall()
    client = hall.open()
    client.send(message("poll", "去哪儿？", poll_id="p", options=["海边", "山上"]))
    client.send(message("poll", poll_id="p", vote="海边"))
    (change,) = changes(client.effects)
    assert change.agents is None
    assert change.task == Task(task_id="p", data=change.task.data)


@pytest.mark.parametrize(
    "vote",
    [
        {"poll_id": "p", "vote": "b"},
        {"poll_id": "p", "vote": "山上"},
        {"poll_id": "p", "vote": "hill"},
        {"poll_id": "p", "votes": ["b"]},
        {"poll_id": "p", "option_id": "b"},
        {"poll_id": "p", "option_ids": ["b", "b"]},
        {"poll_id": "p", "choice": " B "},
        {"task_id": "p", "answer": "山上"},
        {"reply_to": "m1", "vote": "b"},
    ],
)
def test_the_spellings_of_a_vote(vote: Json) -> None:
    hall = Hall()
    client = hall.open()
    options = [{"id": "a", "text": "海边"}, {"id": "b", "label": "山上", "value": "hill"}]
    client.send(message("poll", "去哪儿？", message_id="m1", poll_id="p", options=options))
    (shown,) = client.send(message("poll", **vote))
    assert shown["payload"]["results"] == {"a": [], "b": ["user123"]}
    assert shown["payload"]["text"] == "山上"
    assert shown["payload"]["poll_id"] == "p"


def test_several_options_and_none() -> None:
    hall = Hall()
    client = hall.open()
    client.send(message("poll", "吃什么？", poll_id="p", options=[1, 2, 3], multiple=True))
    (shown,) = client.send(message("poll", poll_id="p", votes=[1, "3"]))
    assert shown["payload"]["results"] == {"1": ["user123"], "2": [], "3": ["user123"]}
    (shown,) = client.send(message("poll", poll_id="p", votes=[]))
    assert shown["payload"]["results"] == {"1": [], "2": [], "3": []}
    assert shown["payload"]["total_votes"] == 0


def test_a_poll_without_options_takes_every_answer() -> None:
    hall = Hall()
    client = hall.open()
    client.send(message("poll", "叫什么名字？", poll_id="p"))
    (shown,) = client.send(message("poll", poll_id="p", vote="小白"))
    assert shown["payload"]["results"] == {"小白": ["user123"]}


def test_a_closed_poll_takes_no_votes() -> None:
    hall = Hall()
    client = hall.open()
    client.send(message("poll", "去哪儿？", poll_id="p", options=["海边", "山上"]))
    (shown,) = client.send(message("poll", poll_id="p", status="closed"))
    assert state(shown)[0] == "closed"
    (error,) = client.send(message("poll", poll_id="p", vote="海边"))
    assert error["payload"]["details"] == "payload.poll_id: 投票已经结束"


def dicts(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.sampled_from(["id", "text", "label", "value", "x"]), values)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | dicts(x)))
def test_no_options_are_too_strange(options: Any) -> None:
    found = options_of(options)
    assert all(isinstance(option.id, str) for option in found)
    labels(found)
    for option in found:
        assert find_option(found, option.id) is not None


# Handoffs


@pytest.mark.parametrize("member", ["to", "to_agent", "target", "assignee"])
def test_an_agent_gets_what_is_handed_over_to_it(member: str) -> None:
    hall = Hall(members=("user123", "user124"))
    client = hall.open("user123")
    client.send(message("handoff", "请接手", **{member: SCRIBE}))
    say, change = client.effects
    assert isinstance(say, Say)
    assert isinstance(change, ChangeTask)
    assert say.agents == change.agents == ("scribe",)
    assert change.task.assignees == (Author("scribe", "agent", "书记员"),)
    assert change.task.kind == "handoff"


def test_a_task_that_is_handed_over_has_a_new_assignee() -> None:
    hall = Hall()
    client = hall.open()
    client.send(message("task", "做", task_id="t", assignees=[LI]))
    client.send(message("handoff", "请接手", task_id="t", to=SCRIBE))
    created, reassigned = changes(client.effects)
    assert (created.task.kind, created.action) == ("handoff", "created")
    assert (reassigned.task.task_id, reassigned.action) == ("t", "updated")
    assert hall.tasks["t"].assignees == (Author("scribe", "agent", "书记员"),)
