"""What a client gets that comes back: what it has missed, and what is still open."""

from __future__ import annotations

from typing import Any

import pytest

from busd.gateway import Author, Enter, Entry, Kind
from tests.gateway.tkr.client import NOW, Client, a_reply, a_turn, an_entered
from tests.gateway.tkr.original import Packet, shown_by_the_original


def words(number: int, author: str = "ann", **members: Any) -> Entry:
    return Entry(
        text=f"words {number}",
        id=f"w{number}",
        author=Author(author),
        timestamp=NOW,
        number=number,
        type="text",
        **members,
    )


def messages(client: Client) -> list[Any]:
    return [data for name, data in client.opened_with if name == "message"]


def test_a_client_that_names_no_message_is_known_by_its_namespace_agent_and_name() -> None:
    enter = Client("/agents", session_id="s1", agent_id="rita", client_id="tab2").requested(Enter)
    assert (enter.client, enter.after, enter.last) == ("tkr:/agents:rita:tab2", "", 0)
    assert Client(session_id="s1").requested(Enter).client == "tkr:/::"


def test_the_name_of_a_client_is_short_and_can_be_printed() -> None:
    name = Client(session_id="s1", agent_id="x" * 300, client_id="a\nb").requested(Enter).client
    assert name == f"tkr:/:{'x' * 100}:a?b"


@pytest.mark.parametrize("name", ["last_message_id", "lastMessageId"])
def test_a_client_may_name_the_last_message_it_has_in_its_handshake(name: str) -> None:
    query: dict[str, Any] = {"session_id": "s1", name: "w7"}
    assert Client(**query).requested(Enter).after == "w7"


@pytest.mark.parametrize("name", ["last_message_id", "lastMessageId"])
def test_a_client_may_name_the_last_message_it_has_when_it_joins(name: str) -> None:
    client = Client(session_id="s1")
    client.requests.clear()
    client.send("join", {"type": "session", "id": "s1", name: "w7"})
    assert client.requested(Enter).after == "w7"


@pytest.mark.parametrize(("asked", "last"), [("20", 20), ("-1", 0), ("9999", 500), ("many", 0)])
def test_a_client_may_ask_for_messages_of_the_past(asked: str, last: int) -> None:
    assert Client(session_id="s1", history=asked).requested(Enter).last == last
    client = Client()
    client.send("join", {"type": "session", "id": "s1", "history": asked})
    assert client.requested(Enter).last == last


def test_what_was_missed_is_shown_in_order_after_the_status() -> None:
    entered = an_entered(entries=[words(1, "bob"), a_reply("sunny"), words(3, "bob")])
    client = Client(session_id="s1", entered=entered)
    assert [name for name, _ in client.opened_with] == ["connect:status", *["message"] * 3]
    assert [each["content"] for each in messages(client)] == ["words 1", "sunny", "words 3"]
    assert [each["id"] for each in messages(client)] == ["w1", "reply-1", "w3"]
    assert messages(client)[1]["in_reply_to"] == "msg_1"
    assert messages(client)[1]["streaming"] is False


def test_the_original_shows_what_it_missed_but_not_what_it_has_said_itself() -> None:
    entries = [words(1, to=("rita",)), a_reply("sunny", agent="rita"), words(3, "bob")]
    client = Client(session_id="s1", entered=an_entered(entries=entries))
    assert [shown_by_the_original(each) for each in messages(client)] == [
        None,
        Packet("rita", "sunny", True),
        Packet("bob", "words 3", True),
    ]


def test_ones_own_words_to_nobody_are_not_shown_by_the_original_either() -> None:
    client = Client(session_id="s1", entered=an_entered(entries=[words(1)]))
    assert shown_by_the_original(messages(client)[0]) is None


def test_a_failure_that_was_missed_is_an_error_message() -> None:
    entry = Entry(
        text="the tool is broken",
        id="reply-1",
        author=Author("rita", "agent"),
        timestamp=NOW,
        kind=Kind.FAILURE,
        turn="w1",
    )
    client = Client(session_id="s1", entered=an_entered(entries=[entry]))
    [error] = messages(client)
    assert (error["type"], error["id"], error["in_reply_to"]) == ("error", "reply-1_error", "w1")
    assert error["content"] == "the tool is broken"


def test_an_answer_in_the_making_follows_what_was_missed() -> None:
    entered = an_entered(entries=[words(1, "bob")], turns=[a_turn(text="It is")])
    client = Client(session_id="s1", entered=entered)
    assert [each["content"] for each in messages(client)] == ["words 1", "It is"]
    assert messages(client)[1]["streaming"] is True


def test_an_entry_without_a_time_has_the_present_one() -> None:
    entry = Entry(text="hello", id="w1", author=Author("bob"))
    client = Client(session_id="s1", entered=an_entered(entries=[entry]))
    assert messages(client)[0]["timestamp"] == NOW
