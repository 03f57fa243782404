"""Connecting, joining and leaving rooms, and subscribing to tasks."""

from __future__ import annotations

from typing import Any

import pytest

from busd.gateway import Author, Enter, Leave, Task
from tests.gateway.tkr.client import NOW, Client, an_entered, refusing

JOINED = {"room_type": "session", "room_id": "s2", "timestamp": NOW}


@pytest.mark.parametrize(
    ("namespace", "status"),
    [
        ("/", {"agent_id": "rita", "session_id": "s1"}),
        ("/agents", {"agent_id": "rita", "session_id": "s1", "namespace": "/agents"}),
        ("/tasks", {"namespace": "/tasks"}),
    ],
)
def test_a_client_is_told_first_that_it_is_connected(namespace: str, status: Any) -> None:
    client = Client(namespace, session_id="s1", agent_id="rita", client_type="client")
    said = {"connected": True, "socket_id": "socket-1", **status}
    assert client.opened_with == [("connect:status", said)]


def test_a_client_enters_the_session_of_its_handshake() -> None:
    client = Client("/agents", session_id="s1", agent_id="rita")
    enter = client.requested(Enter)
    assert (enter.conversation, enter.author) == ("s1", Author("ann"))


def test_a_client_without_a_session_enters_none() -> None:
    client = Client()
    assert client.opened_with == [
        (
            "connect:status",
            {"connected": True, "agent_id": "", "session_id": "", "socket_id": "socket-1"},
        )
    ]
    assert client.requests == []


def test_a_client_that_may_not_enter_is_told_why() -> None:
    client = Client(session_id="s1", refuse=refusing("unauthenticated", Enter, "send a token"))
    (_, status), (event, error) = client.opened_with
    assert status["connected"] is True
    assert event == "error"
    assert (error["error_code"], error["message"]) == ("socket.auth.required", "send a token")


@pytest.mark.parametrize("namespace", ["/", "/agents", "/tasks"])
def test_a_session_is_joined(namespace: str) -> None:
    client = Client(namespace)
    assert client.send("join", {"type": "session", "id": "s2"}) is None
    assert client.requested(Enter).conversation == "s2"
    assert client.take() == [("joined", JOINED)]


def test_a_room_is_a_session_unless_it_says_otherwise() -> None:
    client = Client()
    client.send("join", {"id": "s2"})
    assert client.take() == [("joined", JOINED)]


def test_the_session_of_the_handshake_is_joined_without_entering_it_again() -> None:
    client = Client(session_id="s2")
    client.requests.clear()
    client.send("join", {"type": "session", "id": "s2"})
    assert client.requests == []
    assert client.take("joined") == [JOINED]


def test_a_session_is_left() -> None:
    client = Client(session_id="s2")
    client.requests.clear()
    client.send("leave", {"type": "session", "id": "s2"})
    assert client.requested(Leave).conversation == "s2"
    assert client.take() == [("left", JOINED)]


def test_a_session_that_was_not_joined_is_left_all_the_same() -> None:
    client = Client()
    client.send("leave", {"type": "session", "id": "s2"})
    assert client.requests == []
    assert client.take() == [("left", JOINED)]


@pytest.mark.parametrize("kind", ["agent", "task"])
def test_the_room_of_an_agent_or_task_is_joined_and_left(kind: str) -> None:
    client = Client(session_id="s1")
    client.requests.clear()
    said = {"room_type": kind, "room_id": "x1", "timestamp": NOW}
    client.send("join", {"type": kind, "id": "x1"})
    client.send("leave", {"type": kind, "id": "x1"})
    assert client.take() == [("joined", said), ("left", said)]
    assert client.requests == []


@pytest.mark.parametrize("event", ["join", "leave"])
def test_a_room_without_an_id(event: str) -> None:
    client = Client(session_id="s1")
    for data in ({"type": "session"}, {"type": "session", "id": None}, {"id": ""}, None):
        client.send(event, data)
        error = client.error()
        assert (error["type"], error["message"]) == ("validation", "Missing room ID")
        assert error["details"] == {"field": "id", "required_fields": ["id"]}
    assert client.is_alive()


@pytest.mark.parametrize("event", ["join", "leave"])
def test_a_room_of_an_unknown_type(event: str) -> None:
    client = Client(session_id="s1")
    client.send(event, {"type": "kitchen", "id": "k1"})
    error = client.error()
    assert (error["type"], error["message"]) == ("validation", "Unknown room type: kitchen")
    assert error["details"]["supported_types"] == ["session", "agent", "task"]
    assert client.is_alive()


@pytest.mark.parametrize("value", [True, 1.5, {}, [], "x" * 300])
def test_a_room_whose_id_is_none(value: Any) -> None:
    client = Client(session_id="s1")
    client.send("join", {"type": "session", "id": value})
    assert client.error()["details"]["field"] == "id"
    assert client.is_alive()


@pytest.mark.parametrize("data", ["s1", 7, [], True])
def test_a_room_that_is_no_object(data: Any) -> None:
    client = Client(session_id="s1")
    client.send("join", data)
    assert client.error()["details"]["field"] == "data"
    assert client.is_alive()


def test_a_session_that_may_not_be_entered_is_an_error_of_the_room() -> None:
    client = Client(refuse=refusing("member", Enter, "this room is not yours"))
    client.send("join", {"type": "session", "id": "s2"})
    error = client.error()
    assert (error["type"], error["details"]["rule"]) == ("server", "member")
    assert error["message"] == "Failed to join room: this room is not yours"


def test_a_client_is_in_a_limited_number_of_rooms() -> None:
    client = Client()
    for number in range(64):
        client.send("join", {"type": "session", "id": f"s{number}"})
    assert len(client.take("joined")) == 64
    client.send("join", {"type": "session", "id": "one more"})
    assert "leave one first" in client.error()["message"]
    client.send("leave", {"type": "session", "id": "s0"})
    client.send("join", {"type": "session", "id": "one more"})
    assert len(client.take("joined")) == 1
    for number in range(257):
        client.send("join", {"type": "agent", "id": f"a{number}"})
    assert client.error()["details"]["rule"] == "limit"


def test_a_task_is_subscribed_to_and_unsubscribed_from() -> None:
    client = Client("/tasks", session_id="s1")
    ack = client.send("subscribe", {"task_id": "t1"})
    assert ack == {"status": "subscribed", "task_id": "t1"}
    ack = client.send("unsubscribe", {"task_id": "t1"})
    assert ack == {"status": "unsubscribed", "task_id": "t1"}


def test_a_subscriber_is_shown_how_the_task_is_now() -> None:
    client = Client("/tasks", session_id="s1")
    client.entered = an_entered(tasks=[Task(task_id="t1", status="running"), Task(task_id="t2")])
    client.send("subscribe", {"task_id": "t1"})
    [event] = client.take("task_event")
    assert (event["task_id"], event["status"]) == ("t1", "running")


@pytest.mark.parametrize("event", ["subscribe", "unsubscribe"])
@pytest.mark.parametrize(
    "data", [None, {}, {"task_id": None}, {"task_id": True}, {"task_id": ""}, 7]
)
def test_a_subscription_to_no_task(event: str, data: Any) -> None:
    client = Client("/tasks", session_id="s1")
    ack = client.send(event, data)
    assert ack["status"] == "error"
    assert "task_id" in ack["message"] or "data" in ack["message"]
    assert client.is_alive()


def test_a_subscription_may_name_its_session() -> None:
    client = Client("/tasks")
    client.send("subscribe", {"task_id": "t1", "session_id": "s2"})
    assert client.requested(Enter).conversation == "s2"


def test_a_subscription_in_a_session_that_may_not_be_entered_is_refused() -> None:
    client = Client("/tasks", refuse=refusing("member", Enter, "this room is not yours"))
    ack = client.send("subscribe", {"task_id": "t1"})
    assert ack == {"status": "error", "message": "this room is not yours"}
    assert client.dialect.connection.tasks == set()
