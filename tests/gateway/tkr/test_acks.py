"""The acks of the event `message`, and the signs of life, in each namespace."""

from __future__ import annotations

from typing import Any

import pytest

from busd.gateway import ChangeTask, Emit, Enter, Say, ShareContext
from tests.gateway.tkr.client import ACK_OF_NOTHING, NOW, Client, refusing

TEXT = {"id": "m1", "type": "text", "session_id": "s1", "from_user": True, "content": "hello"}
TASK = {"id": "m2", "type": "task_update", "session_id": "s1", "task_id": "t1", "status": "done"}
CONTEXT: dict[str, Any] = {
    "id": "m3",
    "type": "context_update",
    "session_id": "s1",
    "from_agent": "rita",
}
CONTEXT_DATA: dict[str, Any] = {"contextId": "c1", "contextData": {"city": "Ulm"}}


@pytest.mark.parametrize("namespace", ["/", "/tasks"])
def test_a_text_is_acknowledged_when_it_is_kept(namespace: str) -> None:
    ack = Client(namespace, session_id="s1").say(**TEXT)
    assert ack == {"status": "delivered", "id": "m1", "persistedId": "m1", "timestamp": NOW}


def test_a_task_update_is_acknowledged() -> None:
    ack = Client(session_id="s1").say(**TASK)
    assert ack == {"status": "success", "id": "m2", "taskId": "t1", "timestamp": NOW}


def test_a_context_update_is_acknowledged() -> None:
    ack = Client(session_id="s1").say(**CONTEXT, **CONTEXT_DATA)
    assert ack == {"status": "success", "id": "m3", "contextId": "c1", "timestamp": NOW}


def test_a_users_text_to_agents_is_acknowledged_as_kept() -> None:
    assert Client("/agents", session_id="s1").say(**TEXT) == {
        "status": "delivered",
        "message_id": "m1",
        "persisted": True,
        "persistedId": "m1",
        "timestamp": NOW,
    }


@pytest.mark.parametrize("message", [TASK, {**CONTEXT, **CONTEXT_DATA}], ids=["task", "context"])
def test_anything_else_to_agents_is_acknowledged_as_received(message: dict[str, Any]) -> None:
    ack = Client("/agents", session_id="s1").say(**message)
    assert ack == {"status": "received", "message_id": message["id"], "timestamp": NOW}


def test_an_agents_text_is_acknowledged_as_received() -> None:
    client = Client("/agents", session_id="s1")
    ack = client.say(id="m1", type="text", session_id="s1", from_agent="rita", content="sunny")
    assert ack == {"status": "received", "message_id": "m1", "timestamp": NOW}


def test_a_message_without_an_id_is_acknowledged_with_the_one_it_got() -> None:
    ack = Client(session_id="s1").say(content="hello")
    assert ack["id"] == ack["persistedId"] == "id-1"


def test_a_number_as_id_is_acknowledged_as_the_client_spells_it() -> None:
    client = Client(session_id="s1")
    ack = client.say(**{**TEXT, "id": 7})
    assert (ack["id"], ack["persistedId"]) == (7, "7")
    assert client.requested(Say).entry.id == "7"


def test_who_wants_no_ack_gets_none() -> None:
    client = Client(session_id="s1")
    assert client.send("message", TEXT, wants_ack=False) is ACK_OF_NOTHING
    assert client.send("message", {"type": "nonsense"}, wants_ack=False) is ACK_OF_NOTHING
    assert client.send("ping", wants_ack=False) is ACK_OF_NOTHING


@pytest.mark.parametrize(
    ("kind", "message"), [(Say, TEXT), (ChangeTask, TASK), (ShareContext, CONTEXT | CONTEXT_DATA)]
)
def test_what_is_refused_is_an_error_in_the_ack_and_an_event(
    kind: type[Any], message: dict[str, Any]
) -> None:
    client = Client(session_id="s1", refuse=refusing("busy", kind, "the disk is full"))
    ack = client.say(**message)
    assert ack == {"status": "error", "id": message["id"], "message": "the disk is full"}
    error = client.error()
    assert error["error_code"] == "socket.server.error"
    assert error["message"] == "the disk is full"


def test_what_is_refused_to_agents_is_an_error_in_their_ack() -> None:
    client = Client("/agents", session_id="s1", refuse=refusing("limit", Say, "too many turns"))
    assert client.say(**TEXT) == {"status": "error", "message": "too many turns", "timestamp": NOW}


def test_a_session_that_cannot_be_entered_refuses_the_message() -> None:
    client = Client(refuse=refusing("member", Enter, "this room is not yours"))
    ack = client.say(**TEXT)
    assert ack["message"] == "this room is not yours"
    assert client.error()["error_code"] == "socket.room.access_denied"
    assert not any(isinstance(each, Say) for each in client.requests)


@pytest.mark.parametrize(
    ("rule", "detail", "code", "category", "about"),
    [
        ("unauthenticated", "", "socket.auth.required", "authentication", {}),
        ("authentication", "", "socket.auth.invalid", "authentication", {}),
        (
            *("author", "ben", "socket.permission.denied", "authorization"),
            {"field": "from_agent", "value": "ben"},
        ),
        (
            *("conversation", "", "socket.room.access_denied", "authorization"),
            {"field": "session_id"},
        ),
        ("invalid", "entry.id", "socket.message.validation", "message", {"field": "id"}),
        (
            *("agent", "nobody", "socket.message.delivery", "message"),
            {"field": "to_agent", "value": "nobody"},
        ),
        (
            *("prompt", "p9", "socket.message.validation", "message"),
            {"field": "prompt_id", "value": "p9"},
        ),
        (
            *("option", "paris", "socket.message.validation", "message"),
            {"field": "content", "value": "paris"},
        ),
        ("limit", "turns", "socket.message.rate_limit", "rate_limit", {"limit": "turns"}),
        ("busy", "", "socket.server.error", "internal", {}),
    ],
)
def test_each_rule_has_its_code_and_names_what_is_at_fault(
    rule: str, detail: str, code: str, category: str, about: dict[str, str]
) -> None:
    client = Client(session_id="s1", refuse=refusing(rule, Say, "no", detail=detail))
    client.say(**TEXT)
    error = client.error()
    assert (error["error_code"], error["category"]) == (code, category)
    assert error["details"] == {"rule": rule, "message_id": "m1", **about}
    assert error["retry_suggested"] is False


def test_a_frame_that_the_host_does_not_pass_on_is_an_error() -> None:
    client = Client(session_id="s1", agent_id="rita")
    [effect] = client.dialect.refuse("limit", "a frame of more than 5 MiB")
    assert isinstance(effect, Emit)
    error = effect.data
    assert error["error_code"] == "socket.message.rate_limit"
    assert error["message"] == "a frame of more than 5 MiB"
    assert (error["session_id"], error["agent_id"]) == ("s1", "rita")


@pytest.mark.parametrize("namespace", ["/", "/agents", "/tasks"])
def test_a_ping_is_acknowledged_and_answered(namespace: str) -> None:
    client = Client(namespace, session_id="s1")
    ack = client.send("ping", {"timestamp": "2026-02-17T05:00:00.123Z"})
    assert ack == {"status": "pong", "timestamp": NOW}
    assert client.take("pong") == [{"timestamp": NOW}]


def test_a_ping_needs_no_content() -> None:
    client = Client()
    assert client.send("ping") == {"status": "pong", "timestamp": NOW}


def test_a_ping_may_come_as_a_message() -> None:
    client = Client(session_id="s1")
    ack = client.say(id="m1", type="ping", session_id="s1")
    assert ack == {"status": "pong", "timestamp": NOW}
    assert client.take("pong") == [{"timestamp": NOW}]
    agent = Client("/agents", session_id="s1")
    ack = agent.say(id="m1", type="ping", session_id="s1")
    assert ack == {"status": "received", "message_id": "m1", "timestamp": NOW}


@pytest.mark.parametrize("kind", ["pong", "ack"])
def test_a_pong_or_ack_is_acknowledged_and_nothing_more(kind: str) -> None:
    client = Client(session_id="s1")
    client.requests.clear()
    assert client.say(id="m1", type=kind)["status"] == "received"
    assert client.requests == []
    assert client.take() == []


@pytest.mark.parametrize("event", ["pong", "error"])
def test_the_answer_to_a_ping_and_a_reported_fault_are_taken(event: str) -> None:
    client = Client(session_id="s1")
    assert client.send(event, {"message": "the page has crashed"}) is None
    assert client.take() == []
