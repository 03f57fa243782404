"""Tasks, the steps of an agent's work, and shared context: in and out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from busd.gateway import (
    Author,
    Cancel,
    ChangeTask,
    ContextShared,
    ShareContext,
    Step,
    Stepped,
    Task,
    TaskChanged,
    TaskUpdate,
    TurnEnd,
    TurnEnded,
)
from tests.gateway.tkr.client import NOW, Client, a_turn
from tests.gateway.tkr.original import shown_by_the_original

RITA = Author("rita", "agent")
SESSION = {"session_id": "s1", "id": "m1"}


def changed(**message: Any) -> ChangeTask:
    client = Client(session_id="s1")
    client.say(**SESSION, **message)
    found: ChangeTask = client.requested(ChangeTask)
    return found


# In


def test_a_task_update_changes_its_task() -> None:
    change = changed(type="task_update", task_id="t1", status="completed", result={"degrees": 21})
    assert (change.conversation, change.action, change.by) == ("s1", "updated", Author("ann"))
    assert (change.task.task_id, change.task.status) == ("t1", "completed")
    assert change.task.result == Raw(b'{"degrees":21}')
    assert change.task.title is change.task.progress is change.task.data is UNSET


def test_a_task_update_may_come_in_the_legacy_spelling() -> None:
    change = changed(type="task_update", taskId="t1", sessionId="s1", fromAgent="rita", status="x")
    assert (change.task.task_id, change.by) == ("t1", RITA)


@pytest.mark.parametrize(
    ("action", "wanted", "status"),
    [
        ("create", "created", UNSET),
        ("update", "updated", UNSET),
        ("cancel", "cancelled", "cancelled"),
    ],
)
def test_a_task_is_created_changed_or_cancelled(action: str, wanted: str, status: Any) -> None:
    change = changed(type="task_update", task_id="t1", action=action)
    assert (change.action, change.task.status) == (wanted, status)


def test_what_else_is_said_of_a_task_is_kept_with_it() -> None:
    change = changed(
        type="task_update",
        task_id="t1",
        action="create",
        title="Weather",
        progress=50,
        agentIds=["rita", "agent:phil"],
        description="of today",
        context={"city": "Ulm"},
        severity="low",
        password="hunter2",
    )
    assert (change.task.title, change.task.progress) == ("Weather", 50.0)
    assert change.task.assignees == (RITA, Author("phil", "agent"))
    assert msgspec.json.decode(msgspec.json.encode(change.task.data)) == {
        "description": "of today",
        "context": {"city": "Ulm"},
        "severity": "low",
    }


def test_a_null_result_is_a_result() -> None:
    assert changed(type="task_update", task_id="t1", result=None).task.result == Raw(b"null")


def test_a_task_update_may_be_for_one_agent() -> None:
    assert changed(type="task_update", task_id="t1", to_agent="rita").agents == ("rita",)
    assert changed(type="task_update", task_id="t1").agents == ()


def test_the_originals_command_for_a_task_changes_it() -> None:
    data = {"status": "completed", "result": "sunny", "note": "by hand"}
    change = changed(type="task", action="update_status", task_id="t1", data=data)
    assert (change.action, change.task.status) == ("updated", "completed")
    assert change.task.result == Raw(b'"sunny"')
    assert change.task.data == Raw(b'{"note":"by hand"}')


def test_a_task_may_be_subscribed_to_by_a_message() -> None:
    client = Client(session_id="s1")
    for action in ("subscribe", "unsubscribe"):
        ack = client.say(**SESSION, type="task", task_id="t1", action=action)
        assert ack == {"status": "success", "id": "m1", "taskId": "t1", "timestamp": NOW}
        [event] = client.take("task_event")
        assert event == {"type": f"{action}d", "task_id": "t1", "timestamp": NOW}


def test_shared_context_goes_to_the_agents_that_it_names() -> None:
    client = Client(session_id="s1")
    message = {"type": "context_update", "from_agent": "rita", "context_id": "c1"}
    client.say(**SESSION, **message, context_data={"city": "Ulm"}, target_agents=["phil", "ben"])
    share = client.requested(ShareContext)
    assert (share.conversation, share.context_id, share.by) == ("s1", "c1", RITA)
    assert share.data == Raw(b'{"city":"Ulm"}')
    assert share.agents == ("phil", "ben")


@pytest.mark.parametrize("data", [{}, [], 0, False, "Ulm"])
def test_any_data_but_null_are_shared(data: Any) -> None:
    client = Client(session_id="s1")
    client.say(**SESSION, type="context_update", contextId="c1", contextData=data)
    share = client.requested(ShareContext)
    assert msgspec.json.decode(share.data) == data
    assert (share.agents, share.by) == ((), Author("ann"))


# Out


def task_changed(by: Author = RITA) -> TaskChanged:
    task = Task(
        task_id="t1",
        status="completed",
        progress=100,
        title="Weather",
        result=Raw(b'{"degrees":21}'),
        assignees=(RITA,),
        data=Raw(b'{"city":"Ulm","type":"x","id":"y","status":"z"}'),
        history=(TaskUpdate(NOW, RITA, "completed", 100),),
    )
    return TaskChanged("s1", task, "updated", by, False)


def test_a_changed_task_is_a_task_update_and_a_task_event() -> None:
    (first, update), (second, event) = Client(session_id="s1").show(task_changed())
    assert (first, second) == ("task:update", "task_event")
    assert update["type"] == "task_update"
    assert update["task_id"] == update["taskId"] == "t1"
    assert update["session_id"] == update["sessionId"] == "s1"
    assert update["from_agent"] == "rita"
    assert (update["status"], update["action"]) == ("completed", "update")
    assert update["result"] == {"degrees": 21}
    assert (update["title"], update["progress"], update["city"]) == ("Weather", 100, "Ulm")
    assert (event["type"], event["task_id"], event["status"]) == ("task_update", "t1", "completed")
    assert (event["result"], event["agent_id"]) == ({"degrees": 21}, "rita")
    assert event["task_data"]["id"] == "t1"
    assert event["task_data"]["status"] == "completed"


def test_a_task_that_a_user_has_changed_names_no_agent() -> None:
    (_, update), (_, event) = Client(session_id="s1").show(task_changed(Author("bob")))
    assert update["from_user"] is True
    assert update["metadata"]["author"]["id"] == "bob"
    assert "from_agent" not in update
    assert "agent_id" not in event


def test_in_the_task_namespace_only_subscribers_are_shown_a_task() -> None:
    client = Client("/tasks", session_id="s1")
    assert client.show(task_changed()) == []
    client.send("subscribe", {"task_id": "t1"})
    names = [name for name, _ in client.show(task_changed())]
    assert names == ["task:update", "task_event"]
    assert client.take("task_event")[-1]["type"] == "task:update"
    client.send("unsubscribe", {"task_id": "t1"})
    assert client.show(task_changed()) == []


def a_step(**members: Any) -> Step:
    return Step(id="step-1", name="Look it up", **members)


def test_a_step_is_a_task_from_its_beginning_to_its_end() -> None:
    client, turn = Client(session_id="s1"), a_turn()
    begun = a_step(tool="weather", arguments=Raw(b'{"city":"Ulm"}'), parent="step-0")
    [_, (event, first), _] = client.show(Stepped("s1", turn, begun, True))
    assert event == "task:update"
    assert (first["type"], first["task_id"], first["action"]) == ("task_update", "step-1", "create")
    assert (first["status"], first["title"]) == ("in_progress", "Look it up")
    assert (first["from_agent"], first["in_reply_to"]) == ("phil", "msg_1")
    assert first["metadata"] == {
        "turn": "msg_1",
        "name": "Look it up",
        "tool": "weather",
        "parent": "step-0",
        "arguments": {"city": "Ulm"},
    }
    done = a_step(payload=Raw(b'{"degrees":21}'), status="complete")
    [(_, last), (_, event_data)] = client.show(Stepped("s1", turn, done, True))
    assert (last["action"], last["status"], last["result"]) == (
        "update",
        "completed",
        {"degrees": 21},
    )
    assert event_data["status"] == "completed"
    assert event_data["message"] == "Look it up"


def test_in_the_task_namespace_a_step_may_be_subscribed_to() -> None:
    client, turn = Client("/tasks", session_id="s1"), a_turn()
    assert client.show(Stepped("s1", turn, a_step(), True)) == []
    client.send("subscribe", {"task_id": "step-1"})
    names = [name for name, _ in client.show(Stepped("s1", turn, a_step(), True))]
    assert names == ["task:update", "task_event"]
    client.show(TurnEnded("s1", turn, TurnEnd.REPLIED, True))
    assert client.dialect.showing._steps == {}


def test_a_step_that_fails_says_why() -> None:
    step = a_step(status="failed", code="missing", payload=Raw(b'"no such tool"'))
    update = Client(session_id="s1").show(Stepped("s1", a_turn(), step, True))[-2][1]
    assert (update["status"], update["error_code"]) == ("failed", "missing")
    assert update["result"] == "no such tool"


def test_cancelling_the_task_of_a_step_cancels_the_turn() -> None:
    client, turn = Client(session_id="s1"), a_turn()
    client.show(Stepped("s1", turn, a_step(), True))
    client.requests.clear()
    message = {**SESSION, "type": "task_update", "task_id": "step-1", "action": "cancel"}
    ack = client.say(**message)
    cancel = client.requested(Cancel)
    assert (cancel.conversation, cancel.turn) == ("s1", "msg_1")
    assert ack["status"] == "success"
    client.show(TurnEnded("s1", turn, TurnEnd.CANCELLED, True))
    client.say(**message)
    assert client.requested(ChangeTask).action == "cancelled"


def test_shared_context_is_a_context_update_and_a_context_event() -> None:
    event = ContextShared("s1", "c1", Raw(b'{"city":"Ulm"}'), ("phil",), RITA, False)
    (first, update), (second, data) = Client(session_id="s1").show(event)
    assert (first, second) == ("context:update", "context")
    assert update["type"] == "context_update"
    assert update["context_id"] == update["contextId"] == "c1"
    assert update["context_data"] == update["contextData"] == {"city": "Ulm"}
    assert update["target_agents"] == update["targetAgents"] == ["phil"]
    assert update["from_agent"] == "rita"
    assert data == {
        "type": "context:update",
        "context_id": "c1",
        "session_id": "s1",
        "source_agent_id": "rita",
        "context_data": {"city": "Ulm"},
        "timestamp": NOW,
    }


def test_a_task_update_is_no_message_that_the_original_would_show() -> None:
    for _, data in Client(session_id="s1").show(task_changed()):
        assert shown_by_the_original(data | {"sessionId": "s1", "message": ""}) is None
