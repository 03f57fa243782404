"""Invalid input: the dialect's own error names the member, and the connection lives on."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busd.gateway import Say
from tests.gateway.tkr.client import Client
from tests.gateway.tkr.spelled import JSON_VALUES, any_messages

GOOD: dict[str, Any] = {"id": "m1", "type": "text", "session_id": "s1", "content": "hello"}


def refusal_of(message: Any, namespace: str = "/") -> dict[str, Any]:
    """Send a message that is wrong; return the error event."""
    client = Client(namespace, session_id="s1")
    client.requests.clear()
    ack = client.send("message", message)
    assert ack["status"] == "error"
    assert not client.requests
    error: dict[str, Any] = client.error()
    assert error["error_code"] == "socket.message.validation"
    assert error["category"] == "message"
    assert error["severity"] == "warning"
    assert error["recoverable"] is True
    assert error["message"].startswith("Validation error: ")
    assert error["details"]["field"] in ack["message"]
    assert client.is_alive()
    return error


def field_of(**message: Any) -> str:
    """Return the member that is named as being at fault."""
    named: str = refusal_of(message)["details"]["field"]
    return named


def test_a_text_without_content() -> None:
    assert field_of(id="m1", type="text", session_id="s1") == "content"


def test_a_text_with_an_empty_content() -> None:
    assert field_of(**GOOD | {"content": ""}) == "content"


def test_a_text_with_an_empty_text_in_the_legacy_spelling() -> None:
    assert field_of(id="m1", type="text", sessionId="s1", text="") == "content"


def test_a_text_whose_content_is_null() -> None:
    assert field_of(**GOOD | {"content": None}) == "content"


@pytest.mark.parametrize("content", [7, 1.5, True, False])
def test_a_text_whose_content_is_no_text(content: Any) -> None:
    assert field_of(**GOOD | {"content": content}) == "content"


def test_an_unknown_type() -> None:
    error = refusal_of(GOOD | {"type": "shout"})
    assert error["details"]["field"] == "type"
    assert "Unknown message type: shout" in error["message"]


def test_an_unknown_type_that_is_very_long_is_not_repeated() -> None:
    assert len(refusal_of(GOOD | {"type": "x" * 100_000})["message"]) < 500


@pytest.mark.parametrize("kind", [7, True, ["text"], {"name": "text"}])
def test_a_type_that_is_no_text(kind: Any) -> None:
    assert field_of(**GOOD | {"type": kind}) == "type"


def test_a_type_in_capitals_is_understood() -> None:
    client = Client(session_id="s1")
    assert client.say(**GOOD | {"type": "TEXT"})["status"] == "delivered"


@pytest.mark.parametrize("message", [None, [], 7, True, "hello", '["text"]', "", '{"type":'])
def test_a_message_that_is_no_object(message: Any) -> None:
    assert refusal_of(message)["details"]["field"] == "data"


@pytest.mark.parametrize("member", ["id", "session_id", "in_reply_to", "thread_id"])
@pytest.mark.parametrize("value", [True, 1.5, {"id": "m1"}, ["m1"]])
def test_an_id_that_is_neither_text_nor_a_whole_number(member: str, value: Any) -> None:
    assert field_of(**GOOD | {member: value}) == member


@pytest.mark.parametrize("member", ["id", "session_id", "in_reply_to", "to_agent", "thread_id"])
def test_an_id_that_is_too_long(member: str) -> None:
    assert field_of(**GOOD | {member: "x" * 257}) == member


def test_an_id_that_is_a_number_is_taken_for_its_digits() -> None:
    client = Client(session_id="s1")
    client.say(**GOOD | {"id": 12, "session_id": 34, "in_reply_to": 0})
    say = client.requested(Say)
    assert (say.entry.id, say.conversation, say.entry.reply_to) == ("12", "34", "0")


@pytest.mark.parametrize("member", ["from_agent", "to_agent"])
@pytest.mark.parametrize("value", [7, True, {"name": "rita"}, ["rita"]])
def test_an_agent_that_is_no_name(member: str, value: Any) -> None:
    assert field_of(**GOOD | {member: value}) == member


def test_a_member_in_the_legacy_spelling_is_named_in_the_standard_one() -> None:
    assert field_of(**GOOD | {"toAgent": 7}) == "to_agent"


@pytest.mark.parametrize("value", [7, {"name": "ann"}, []])
def test_a_user_that_is_neither_a_flag_nor_a_name(value: Any) -> None:
    assert field_of(**GOOD | {"from_user": value}) == "from_user"


@pytest.mark.parametrize("member", ["streaming", "turn_complete", "recoverable"])
def test_a_flag_that_is_none(member: str) -> None:
    assert field_of(**GOOD | {member: "yes"}) == member


@pytest.mark.parametrize("value", ["yesterday", "", "2026-13-01T00:00:00Z", True, {}, 1e300])
def test_a_time_that_is_none(value: Any) -> None:
    if value == "":
        assert Client(session_id="s1").say(**GOOD | {"timestamp": value})["status"] == "delivered"
    else:
        assert field_of(**GOOD | {"timestamp": value}) == "timestamp"


@pytest.mark.parametrize("value", ["calm", 7, ["calm"], True])
def test_metadata_that_are_no_object(value: Any) -> None:
    assert field_of(**GOOD | {"metadata": value}) == "metadata"


@pytest.mark.parametrize("value", [7, [7], {"rita": True}])
def test_target_agents_that_are_no_names(value: Any) -> None:
    assert field_of(**GOOD | {"target_agents": value}) == "target_agents"


def test_an_agents_message_that_names_no_sender() -> None:
    message = {"type": "agent_message", "to_agent": "rita", "content": "hello"}
    assert field_of(id="m1", session_id="s1", **message) == "from_agent"


def test_an_agents_message_that_names_no_addressee() -> None:
    message = {"type": "agent_message", "from_agent": "rita", "content": "hello"}
    assert field_of(id="m1", session_id="s1", **message) == "to_agent"


def test_an_agents_message_without_content() -> None:
    message = {"type": "agent_message", "from_agent": "rita", "to_agent": "phil"}
    assert field_of(id="m1", session_id="s1", **message) == "content"


def test_a_context_update_without_an_id_of_the_context() -> None:
    assert field_of(type="context_update", from_agent="rita", context_data={}) == "context_id"


@pytest.mark.parametrize("data", [{}, {"context_data": None}])
def test_a_context_update_without_data(data: dict[str, Any]) -> None:
    named = field_of(type="context_update", from_agent="rita", context_id="c1", **data)
    assert named == "context_data"


def test_a_task_update_without_an_id_of_the_task() -> None:
    assert field_of(type="task_update", status="done") == "task_id"


def test_a_task_update_with_an_unknown_action() -> None:
    error = refusal_of({"type": "task_update", "task_id": "t1", "action": "explode"})
    assert error["details"]["field"] == "action"
    assert "create, update, cancel" in error["message"]


@pytest.mark.parametrize("progress", [-1, 101, math.nan, "half"])
def test_a_progress_that_is_no_percentage(progress: Any) -> None:
    assert field_of(type="task_update", task_id="t1", progress=progress) == "progress"


def test_a_command_for_a_task_without_an_action() -> None:
    assert field_of(type="task", task_id="t1") == "action"


def test_half_a_surrogate_pair() -> None:
    assert field_of(**GOOD | {"content": "\ud83d"}) == "content"
    assert field_of(**GOOD | {"metadata": {"mood": "\udc00"}}) == "metadata"


@pytest.mark.parametrize("member", ["id", "type", "session_id", "to_agent", "timestamp"])
def test_half_a_surrogate_pair_in_any_member(member: str) -> None:
    assert field_of(**GOOD | {member: "\ud83d"}) == member


def test_half_a_surrogate_pair_in_the_name_of_a_member() -> None:
    assert refusal_of(GOOD | {"\ud83d": 1})["details"]["field"] == "data"


def test_half_a_surrogate_pair_in_the_name_of_an_event_or_room() -> None:
    client = Client(session_id="s1")
    client.send("\ud83d", {})
    client.send("join", {"type": "session", "id": "\ud83d"})
    client.send("join", {"type": "\ud83d", "id": "s1"})
    assert len(client.take("error")) == 3
    assert client.send("subscribe", {"task_id": "\ud83d"})["status"] == "error"
    assert client.is_alive()


def test_a_number_that_is_too_large() -> None:
    assert field_of(**GOOD | {"id": 10**5000}) == "id"
    assert field_of(**GOOD | {"id": 10**30}) == "id"
    assert field_of(**GOOD | {"metadata": {"number": 10**5000}}) == "metadata"


def test_an_object_that_is_nested_too_deeply() -> None:
    nested: Any = "core"
    for _ in range(100_000):
        nested = [nested]
    assert field_of(**GOOD | {"metadata": {"nested": nested}}) == "metadata"


def test_a_content_of_a_mebibyte_is_said_as_it_is() -> None:
    client = Client(session_id="s1")
    content = "ä" * (1024 * 1024 // 2)
    assert client.say(**GOOD | {"content": content})["status"] == "delivered"
    assert client.requested(Say).entry.text == content


def test_an_unknown_event() -> None:
    client = Client(session_id="s1")
    ack = client.send("shout", GOOD)
    assert ack["status"] == "error"
    assert client.error()["details"]["field"] == "event"
    assert client.is_alive()


@pytest.mark.parametrize("namespace", ["/agents", "/tasks"])
def test_the_same_holds_in_the_other_namespaces(namespace: str) -> None:
    assert refusal_of({"type": "shout"}, namespace)["details"]["field"] == "type"


@settings(deadline=None)
@given(any_messages() | JSON_VALUES, st.sampled_from(["/", "/agents", "/tasks"]))
def test_any_message_is_answered_and_the_connection_lives_on(message: Any, namespace: str) -> None:
    client = Client(namespace, session_id="s1")
    ack = client.send("message", message)
    assert ack["status"] in ("delivered", "received", "success", "pong", "error")
    errors = client.take("error")
    assert len(errors) == (ack["status"] == "error")
    assert client.is_alive()


@settings(deadline=None)
@given(JSON_VALUES, st.sampled_from(["join", "leave", "subscribe", "unsubscribe", "ping", "pong"]))
def test_any_content_of_any_event_is_answered(data: Any, event: str) -> None:
    client = Client(session_id="s1")
    client.send(event, data)
    assert client.is_alive()
