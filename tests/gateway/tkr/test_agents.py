"""Messages of one agent to another: from a client of this format, and from the bus."""

from __future__ import annotations

from typing import Any

import msgspec

from busd.gateway import Author, Refused, Replied, Request, Said, Say, TurnBegan, TurnEnd, TurnEnded
from tests.gateway.tkr.client import NOW, Client, a_reply, a_turn, refusing
from tests.gateway.tkr.original import shown_by_the_original

BEN = Author("ben", "agent")
MESSAGE = {
    "id": "m1",
    "type": "agent_message",
    "session_id": "s1",
    "from_agent": "ben",
    "to_agent": "phil",
    "content": {"question": "How warm is it?"},
    "task_id": "t1",
}


def say_of(client: Client, **message: Any) -> Say:
    client.say(**message)
    found: Say = client.requested(Say)
    return found


def test_an_agents_message_is_said_to_the_other_agent() -> None:
    say = say_of(Client("/agents", session_id="s1", agent_id="ben"), **MESSAGE)
    assert say.agents == ("phil",)
    assert say.entry.author == BEN
    assert say.entry.type == "agent_message"
    assert say.entry.text == '{"question":"How warm is it?"}'
    assert msgspec.json.decode(msgspec.json.encode(say.entry.metadata)) == {
        "type": "agent_message",
        "task_id": "t1",
    }


def test_the_originals_name_for_it_means_the_same() -> None:
    client = Client("/agents", session_id="s1", agent_id="ben")
    # The original's client names neither an id nor a session.
    message = {"type": "a2a", "from_agent": "ben", "to_agent": "phil", "content": "hello"}
    ack = client.say(**message, task_id=None, timestamp="2026-02-17T05:00:00.123Z")
    assert ack == {"status": "received", "message_id": "id-1", "timestamp": NOW}
    say = client.requested(Say)
    assert (say.conversation, say.agents, say.entry.type) == ("s1", ("phil",), "agent_message")


def test_an_agent_that_names_no_sender_is_the_one_of_its_connection() -> None:
    client = Client("/agents", session_id="s1", agent_id="ben")
    say = say_of(client, type="a2a", to_agent="phil", content="hello")
    assert say.entry.author == BEN


def test_a_message_may_go_to_several_agents() -> None:
    client = Client("/agents", session_id="s1", agent_id="ben")
    say = say_of(client, type="agent_message", targetAgents=["phil", "rita"], content="hello")
    assert say.agents == ("phil", "rita")


def test_an_agent_without_the_right_to_speak_is_refused() -> None:
    client = Client("/agents", session_id="s1", refuse=refusing("author", Say, "you are not ben"))
    ack = client.say(**MESSAGE)
    assert (ack["status"], ack["message"]) == ("error", "you are not ben")
    error = client.error()
    assert (error["error_code"], error["recoverable"]) == ("socket.permission.denied", False)


def test_an_agents_message_is_shown_to_the_others_and_in_the_room_of_its_addressee() -> None:
    entry = say_of(Client("/agents", session_id="s1", agent_id="ben"), **MESSAGE).entry
    other, addressee = Client(session_id="s1"), Client("/agents", session_id="s1", agent_id="phil")
    [(event, frame)] = other.show(Said("s1", entry, False))
    assert event == "message"
    assert (frame["type"], frame["from_agent"], frame["to_agent"]) == (
        "agent_message",
        "ben",
        "phil",
    )
    assert frame["task_id"] == frame["taskId"] == "t1"
    assert frame["content"] == {"question": "How warm is it?"}
    assert shown_by_the_original(frame) is None
    [_, (event, data)] = addressee.show(Said("s1", entry, False))
    assert event == "a2a"
    assert data == {
        "type": "agent_message",
        "from_agent": "ben",
        "to_agent": "phil",
        "content": {"question": "How warm is it?"},
        "task_id": "t1",
        "timestamp": NOW,
        "session_id": "s1",
    }


def test_a_client_in_the_room_of_an_agent_gets_what_is_said_to_it() -> None:
    entry = say_of(Client("/agents", session_id="s1", agent_id="ben"), **MESSAGE).entry
    client = Client(session_id="s1")
    client.send("join", {"type": "agent", "id": "phil"})
    assert [name for name, _ in client.show(Said("s1", entry, False))] == ["message", "a2a"]
    client.send("leave", {"type": "agent", "id": "phil"})
    assert [name for name, _ in client.show(Said("s1", entry, False))] == ["message"]


def test_the_answer_to_an_agent_is_an_agents_message_to_that_one() -> None:
    client, turn = Client("/agents", session_id="s1", agent_id="ben"), a_turn(author=BEN)
    assert client.show(TurnBegan("s1", turn, True)) == []
    [(_, frame), (event, data)] = client.show(Replied("s1", turn, a_reply("21 degrees"), True))
    assert (frame["type"], frame["from_agent"], frame["to_agent"]) == (
        "agent_message",
        "phil",
        "ben",
    )
    assert (frame["content"], frame["in_reply_to"]) == ("21 degrees", "msg_1")
    assert frame["toAgent"] == "ben"
    assert (event, data["from_agent"], data["to_agent"]) == ("a2a", "phil", "ben")
    assert client.show(TurnEnded("s1", turn, TurnEnd.REPLIED, True)) == []


def test_a_text_of_one_agent_to_another_is_said_to_it() -> None:
    client = Client("/agents", session_id="s1", agent_id="ben", client_type="agent")
    say = say_of(client, type="text", to_agent="phil", content="hello")
    assert (say.agents, say.entry.author, say.entry.type) == (("phil",), BEN, "text")


def test_what_an_unknown_agent_is_told_is_refused_and_names_it() -> None:
    def refuse(request: Request) -> Refused | None:
        if isinstance(request, Say):
            return Refused(request, "agent", "there is no agent nobody", detail="nobody")
        return None

    client = Client(session_id="s1", refuse=refuse)
    ack = client.say(id="m1", session_id="s1", content="hello", to_agent="nobody")
    assert ack == {"status": "error", "id": "m1", "message": "there is no agent nobody"}
    assert client.error()["error_code"] == "socket.message.delivery"
