"""What clients say: in either spelling, and to whom it goes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from busd.gateway import Answer, Author, Enter, Notify, Post, Say
from tests.gateway.tkr.client import NOW, Client

# As the original's client sends it: both spellings in one frame.
BOTH = {
    "id": "msg_1771304321000_41",
    "type": "text",
    "session_id": "s1",
    "from_user": True,
    "to_agent": "rita",
    "content": "What is the weather in Ulm?",
    "timestamp": "2026-02-17T05:00:00.123Z",
    "sessionId": "s1",
    "text": "What is the weather in Ulm?",
    "toAgent": "rita",
}
STANDARD_NAMES = ("id", "type", "session_id", "from_user", "to_agent", "content", "timestamp")
LEGACY_NAMES = ("id", "type", "sessionId", "text", "toAgent", "timestamp")


@pytest.mark.parametrize(
    "names", [STANDARD_NAMES, LEGACY_NAMES, tuple(BOTH)], ids=["standard", "legacy", "both"]
)
def test_a_users_text_is_said_to_its_agent_in_either_spelling(names: tuple[str, ...]) -> None:
    client = Client(session_id="s1")
    client.say(**{name: BOTH[name] for name in names})
    say = client.requested(Say)
    assert say.conversation == "s1"
    assert say.agents == ("rita",)
    assert say.entry.text == "What is the weather in Ulm?"
    assert say.entry.id == "msg_1771304321000_41"
    assert say.entry.timestamp == "2026-02-17T05:00:00.123Z"
    assert say.entry.author == Author("ann")
    assert (say.entry.type, say.entry.dialect, say.entry.to) == ("text", "tkr", ("rita",))


@pytest.mark.parametrize("namespace", ["/", "/agents", "/tasks"])
def test_a_text_is_said_in_every_namespace(namespace: str) -> None:
    client = Client(namespace, session_id="s1")
    client.say(**BOTH)
    assert client.requested(Say).entry.text == BOTH["content"]


def test_a_text_that_names_no_agent_goes_to_the_default_one() -> None:
    client = Client(session_id="s1")
    client.say(id="m1", session_id="s1", type="text", from_user=True, content="hello")
    assert client.requested(Say).agents == ()


def test_a_text_that_names_no_agent_goes_to_the_one_the_client_has_connected_to() -> None:
    client = Client("/agents", session_id="s1", agent_id="rita")
    client.say(id="m1", session_id="s1", type="text", from_user=True, content="hello")
    say = client.requested(Say)
    assert say.agents == ("rita",)
    assert say.entry.author == Author("ann")


def test_a_text_may_go_to_several_agents() -> None:
    client = Client(session_id="s1")
    client.say(type="text", content="hello", to_agent="rita", target_agents=["phil", "rita"])
    assert client.requested(Say).agents == ("rita", "phil")


def test_an_agent_may_be_named_by_its_address() -> None:
    client = Client(session_id="s1")
    client.say(type="text", content="hello", to_agent="agent:rita")
    assert client.requested(Say).agents == ("rita",)


def test_a_user_may_be_named() -> None:
    client = Client(session_id="s1", user="owner")
    client.say(type="text", content="hello", from_user="Ann")
    assert client.requested(Say).entry.author == Author("owner", name="Ann")


def test_what_is_missing_is_filled_in() -> None:
    client = Client(session_id="s1")
    client.say(content="hello")
    say = client.requested(Say)
    assert say.conversation == "s1"
    assert say.entry.id == "id-1"
    assert say.entry.timestamp == NOW


def test_a_message_without_any_session_is_said_in_the_default_one() -> None:
    client = Client()
    client.say(content="hello")
    assert isinstance(client.requests[0], Enter)
    assert client.requested(Say).conversation == "default"


def test_a_session_that_was_not_joined_is_entered_once() -> None:
    client = Client(session_id="s1")
    assert [type(each) for each in client.requests] == [Enter]
    client.requests.clear()
    client.say(content="hello", session_id="s2")
    client.say(content="again", session_id="s2")
    assert [type(each) for each in client.requests] == [Enter, Say, Say]


def test_null_stands_for_absent() -> None:
    client = Client(session_id="s1")
    nothing: dict[str, Any] = dict.fromkeys(
        ("from_agent", "fromAgent", "in_reply_to", "metadata", "streaming", "task_id", "toAgent")
    )
    client.say(**BOTH | nothing)
    say = client.requested(Say)
    assert say.agents == ("rita",)
    assert say.entry.author == Author("ann")


def test_a_message_may_be_written_as_json_text_with_comments() -> None:
    client = Client(session_id="s1")
    text = '{"type": "text", // what a user says\n "session_id": "s1", "content": "hello",}'
    ack = client.send("message", text)
    assert client.requested(Say).entry.text == "hello"
    assert ack["status"] == "delivered"


def test_an_object_reaches_the_agent_as_json() -> None:
    client = Client(session_id="s1")
    client.say(type="text", content={"city": "Ulm"})
    assert client.requested(Say).entry.text == '{"city":"Ulm"}'


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2026-02-17T05:00:00Z", "2026-02-17T05:00:00Z"),
        ("2026-02-17T06:00:00+01:00", "2026-02-17T05:00:00.000Z"),
        ("2026-02-17T05:00:00.123456", "2026-02-17T05:00:00.123Z"),
        (1771304400123, "2026-02-17T05:00:00.123Z"),
        (1771304400.5, "2026-02-17T05:00:00.500Z"),
    ],
)
def test_a_time_is_kept_in_utc(given: Any, kept: str) -> None:
    client = Client(session_id="s1")
    client.say(content="hello", timestamp=given)
    assert client.requested(Say).entry.timestamp == kept


def test_a_reply_names_what_it_answers_in_either_spelling() -> None:
    client = Client(session_id="s1")
    client.say(content="hello", in_reply_to="m0")
    assert client.requested(Say).entry.reply_to == "m0"
    client.say(content="hello", inReplyTo="m0_error", thread_id="t1")
    entry = client.requested(Say).entry
    assert entry.reply_to == "m0"
    assert entry.thread_id == "t1"


def test_what_the_dialect_does_not_know_is_kept() -> None:
    client = Client(session_id="s1")
    client.say(content="hello", colour="red", metadata={"mood": "calm"})
    entry = client.requested(Say).entry
    assert msgspec.json.decode(entry.original)["colour"] == "red"
    assert msgspec.json.decode(entry.metadata) == {"mood": "calm"}


@pytest.mark.parametrize("name", ["token", "auth_token", "api_key", "auth", "authorization"])
def test_secrets_are_not_kept(name: str) -> None:
    client = Client(session_id="s1")
    secret = {name: {"token": "hunter2"}}
    client.say(content="hello", **secret, metadata={**secret, "mood": "calm"})
    entry = client.requested(Say).entry
    assert b"hunter2" not in msgspec.json.encode(entry)
    assert msgspec.json.decode(entry.metadata) == {"mood": "calm"}


@pytest.mark.parametrize("kind", ["system", "error"])
def test_a_notice_or_fault_of_a_client_is_shown_but_tells_no_agent(kind: str) -> None:
    client = Client(session_id="s1")
    ack = client.say(id="m1", type=kind, session_id="s1", content="be right back")
    post = client.requested(Post)
    assert (post.entry.type, post.entry.text) == (kind, "be right back")
    assert ack["status"] == "delivered"


def test_an_agents_text_to_nobody_is_shown_but_tells_no_agent() -> None:
    client = Client("/agents", session_id="s1", agent_id="rita", client_type="agent")
    client.say(id="m1", type="text", content="It is sunny.", in_reply_to="m0", streaming=False)
    post = client.requested(Post)
    assert post.entry.author == Author("rita", "agent")
    assert post.entry.reply_to == "m0"


def test_a_part_of_an_agents_text_is_shown_but_not_kept() -> None:
    client = Client("/agents", session_id="s1", agent_id="rita", client_type="agent")
    ack = client.say(id="m1", type="text", content="It is", streaming=True, turn_complete=False)
    notify = client.requested(Notify)
    assert msgspec.json.decode(notify.data) == {"id": "m1", "content": "It is", "timestamp": NOW}
    assert ack["status"] == "received"


def test_an_empty_text_begins_what_an_agent_says() -> None:
    client = Client("/agents", session_id="s1", agent_id="rita", client_type="agent")
    ack = client.say(id="m1", type="text", content="", streaming=True)
    assert ack["status"] == "received"
    assert client.requested(Notify)


def test_nothing_is_answered_that_was_not_asked() -> None:
    client = Client(session_id="s1")
    client.say(content="yes")
    assert not any(isinstance(each, Answer) for each in client.requests)
