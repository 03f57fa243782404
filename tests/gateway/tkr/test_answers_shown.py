"""How the answers of agents are shown: piece by piece, complete, failed or cancelled."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from busd.gateway import (
    Author,
    Delta,
    Entry,
    Kind,
    Replied,
    TurnBegan,
    TurnEnd,
    TurnEnded,
    TurnFailed,
)
from tests.gateway.tkr.client import Client, a_reply, a_turn, an_entered
from tests.gateway.tkr.original import Packet, shown_by_the_original


def shown(client: Client, *pieces: str, last: str = "") -> list[Any]:
    """Have an agent answer piece by piece; return the messages that the client gets."""
    turn = a_turn()
    found = client.messages(TurnBegan("s1", turn, True))
    for piece in pieces:
        turn.text += piece
        found += client.messages(Delta("s1", turn, piece, True))
    found += client.messages(Replied("s1", turn, a_reply(last or turn.text), True))
    return found + client.messages(TurnEnded("s1", turn, TurnEnd.REPLIED, True))


def test_an_answer_grows_from_nothing_to_the_whole_under_one_id_and_time() -> None:
    frames = shown(Client(session_id="s1"), "It is ", "sunny.")
    assert [each["content"] for each in frames] == ["", "It is ", "It is sunny.", "It is sunny."]
    assert [each["streaming"] for each in frames] == [True, True, True, False]
    assert [each["turn_complete"] for each in frames] == [False, False, False, True]
    assert {each["id"] for each in frames} == {"reply-1"}
    assert {each["timestamp"] for each in frames} == {"2026-03-04T05:06:00.000Z"}
    assert {each["in_reply_to"] for each in frames} == {"msg_1"}
    assert {each["from_agent"] for each in frames} == {"phil"}


def test_a_client_that_wants_no_parts_of_an_answer_gets_its_beginning_and_its_end() -> None:
    frames = shown(Client(session_id="s1", streaming="false"), "It is ", "sunny.")
    assert [each["content"] for each in frames] == ["", "It is sunny."]


def test_an_answer_at_once_is_an_empty_frame_and_the_whole() -> None:
    frames = shown(Client(session_id="s1"), last="sunny")
    assert [(each["content"], each["streaming"]) for each in frames] == [
        ("", True),
        ("sunny", False),
    ]


def test_a_frame_has_its_members_in_both_spellings() -> None:
    assert shown(Client(session_id="s1"), last="sunny")[-1] == {
        "id": "reply-1",
        "type": "text",
        "timestamp": "2026-03-04T05:06:00.000Z",
        "session_id": "s1",
        "from_agent": "phil",
        "content": "sunny",
        "in_reply_to": "msg_1",
        "streaming": False,
        "turn_complete": True,
        "sessionId": "s1",
        "fromAgent": "phil",
        "text": "sunny",
        "inReplyTo": "msg_1",
        "turnComplete": True,
    }


def test_the_original_shows_the_text_so_far_and_the_whole() -> None:
    packets = [shown_by_the_original(each) for each in shown(Client(session_id="s1"), "It is")]
    assert packets == [None, Packet("phil", "It is", False), Packet("phil", "It is", True)]


def test_the_first_frame_waits_until_the_agent_is_known() -> None:
    client = Client(session_id="s1")
    turn = a_turn(agent="")
    assert client.show(TurnBegan("s1", turn, True)) == []
    turn.agent = Author("worker-1", "agent")
    turn.text = "sun"
    frames = client.messages(Delta("s1", turn, "sun", True))
    assert [each["content"] for each in frames] == ["", "sun"]


def test_a_long_answer_is_shown_in_frames_that_grow() -> None:
    client, turn = Client(session_id="s1"), a_turn()
    frames = client.messages(TurnBegan("s1", turn, True))
    for _ in range(20_000):
        turn.text += "word "
        frames += client.messages(Delta("s1", turn, "word ", True))
    frames += client.messages(Replied("s1", turn, a_reply(turn.text), True))
    lengths = [len(each["content"]) for each in frames]
    assert lengths == sorted(lengths)
    assert lengths[-1] == 100_000
    assert lengths[1:13] == list(range(5, 65, 5))
    assert sum(lengths) < 100_000 * 70


def test_an_answer_to_no_turn_is_shown_on_its_own() -> None:
    client = Client(session_id="s1")
    entry = msgspec.structs.replace(a_reply("by the way"), turn="", id="note-1", reply_to="msg_0")
    [frame] = client.messages(Replied("s1", None, entry, False))
    assert (frame["id"], frame["content"], frame["streaming"]) == ("note-1", "by the way", False)
    assert frame["in_reply_to"] == "msg_0"


def test_two_agents_answer_under_two_ids() -> None:
    client = Client(session_id="s1")
    phil, rita = a_turn("phil"), msgspec.structs.replace(a_turn("rita"), reply_id="reply-2")
    frames = [*client.messages(TurnBegan("s1", phil, True))]
    frames += client.messages(TurnBegan("s1", rita, True))
    assert [(each["from_agent"], each["id"]) for each in frames] == [
        ("phil", "reply-1"),
        ("rita", "reply-2"),
    ]


def failed(client: Client, text: str = "") -> list[Any]:
    turn = a_turn()
    client.show(TurnBegan("s1", turn, True))
    turn.text = text
    entry = Entry(
        text="the tool is broken", id="reply-1", author=turn.agent, turn="msg_1", kind=Kind.FAILURE
    )
    event = TurnFailed(
        "s1",
        turn,
        "worker_failed",
        "the tool is broken",
        Raw(b'{"tool":"weather"}'),
        "error",
        True,
        entry,
        True,
    )
    return [
        *client.messages(event),
        *client.messages(TurnEnded("s1", turn, TurnEnd.FAILED, True)),
    ]


def test_a_failure_ends_the_answer_and_is_an_error_message() -> None:
    end, error = failed(Client(session_id="s1"), "It is")
    assert (end["id"], end["content"], end["streaming"]) == ("reply-1", "It is", False)
    assert end["turn_complete"] is True
    assert error["type"] == "error"
    assert error["id"] == "reply-1_error"
    assert error["content"] == error["text"] == "the tool is broken"
    assert error["from_agent"] == error["fromAgent"] == "phil"
    assert error["in_reply_to"] == "msg_1"
    assert error["error_code"] == error["errorCode"] == "worker_failed"
    assert error["error_details"] == {"tool": "weather"}
    assert (error["severity"], error["recoverable"]) == ("error", True)


def test_the_original_shows_a_failure_as_an_error() -> None:
    error = failed(Client(session_id="s1"))[-1]
    assert shown_by_the_original(error) == Packet("phil", "the tool is broken", True, True)


@pytest.mark.parametrize("text", ["", "It is"])
def test_a_cancelled_answer_ends_as_it_is(text: str) -> None:
    client, turn = Client(session_id="s1"), a_turn()
    client.show(TurnBegan("s1", turn, True))
    turn.text = text
    [end] = client.messages(TurnEnded("s1", turn, TurnEnd.CANCELLED, True))
    assert (end["content"], end["streaming"], end["turn_complete"]) == (text, False, True)


def test_an_answer_whose_beginning_was_not_seen_is_shown_so_far() -> None:
    client = Client(session_id="s1", entered=an_entered(turns=[a_turn(text="It is")]))
    [frame] = [data for name, data in client.opened_with if name == "message"]
    assert (frame["id"], frame["content"], frame["streaming"]) == ("reply-1", "It is", True)
    turn = a_turn(text="It is")
    [last] = client.messages(Replied("s1", turn, a_reply("It is sunny."), True))
    assert (last["id"], last["timestamp"]) == (frame["id"], frame["timestamp"])


def test_nothing_of_an_answer_is_shown_after_the_session_was_left() -> None:
    client, turn = Client(session_id="s1"), a_turn()
    client.show(TurnBegan("s1", turn, True))
    client.send("leave", {"type": "session", "id": "s1"})
    assert client.dialect.showing._streams.end("s1", turn) is None


def test_the_task_namespace_shows_no_answers() -> None:
    assert shown(Client("/tasks", session_id="s1"), "sunny") == []


@given(st.lists(st.text(min_size=1, max_size=200), max_size=30))
def test_the_frames_of_an_answer_are_parts_of_it_that_grow(pieces: list[str]) -> None:
    frames = shown(Client(session_id="s1"), *pieces, last="".join(pieces) or "nothing")
    texts = [each["content"] for each in frames]
    assert texts[0] == ""
    assert texts[-1] == ("".join(pieces) or "nothing")
    assert all(texts[-1].startswith(each) for each in texts)
    assert texts == sorted(texts, key=len)
    assert [each["turn_complete"] for each in frames] == [False] * (len(frames) - 1) + [True]
