"""How the words of other people and clients are shown, whatever they write with."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from busd.gateway import (
    Amended,
    Attachment,
    Author,
    Entered,
    Entry,
    Kind,
    Notified,
    Post,
    Posted,
    Said,
    Say,
)
from tests.gateway.tkr.client import NOW, Client
from tests.gateway.tkr.original import Packet, shown_by_the_original
from tests.gateway.tkr.spelled import standard_messages

LIU = Author("liu", name="刘伟")


def words(text: str = "hello", **members: Any) -> Entry:
    """Return words that somebody has written with a client of another format."""
    author = members.pop("author", LIU)
    return Entry(text=text, id="w1", author=author, timestamp=NOW, dialect="group", **members)


def shown(event: Said | Posted | Amended) -> Any:
    [frame] = Client(session_id="s1").messages(event)
    return frame


def test_the_words_of_another_user_are_a_users_text() -> None:
    frame = shown(Said("s1", words(to=("rita",), reply_to="w0"), False))
    assert frame["type"] == "text"
    assert frame["from_user"] is frame["fromUser"] is True
    assert frame["content"] == frame["text"] == "hello"
    assert frame["session_id"] == frame["sessionId"] == "s1"
    assert frame["in_reply_to"] == "w0"
    assert frame["metadata"]["author"] == {"id": "liu", "type": "user", "name": "刘伟"}
    assert frame["metadata"]["to_agents"] == ["rita"]


def test_the_original_shows_the_words_of_another_user_under_the_users_name() -> None:
    frame = shown(Said("s1", words(to=("rita",)), False))
    assert shown_by_the_original(frame) == Packet("刘伟", "hello", True)


def test_a_note_of_another_format_without_words_is_not_shown_as_an_empty_text() -> None:
    joined = words("", type="join", metadata=Raw(b'{"subject": {"id": "bob"}}'))
    assert Client(session_id="s1").messages(Posted("s1", joined, False)) == []
    entered = Entered(
        conversation="s1",
        is_new=False,
        session_id="x",
        present=[],
        entries=[joined, words("hello")],
        turns=[],
        prompts=[],
        tasks=[],
    )
    assert [each["content"] for each in Client(session_id="s1").messages(entered)] == ["hello"]


def test_what_a_client_has_said_itself_is_not_repeated() -> None:
    client = Client(session_id="s1")
    assert client.show(Said("s1", words(), True)) == []
    assert client.show(Posted("s1", words(kind=Kind.POST), True)) == []


def test_what_another_client_of_this_format_has_said_keeps_all_its_members() -> None:
    one, other = Client(session_id="s1"), Client(session_id="s1")
    one.say(id="m1", session_id="s1", content={"city": "Ulm"}, colour="red", to_agent="rita")
    [frame] = other.messages(Said("s1", one.requested(Say).entry, False))
    assert frame["colour"] == "red"
    assert frame["content"] == {"city": "Ulm"}
    assert "to_agent" not in frame
    assert "toAgent" not in frame


@pytest.mark.parametrize("kind", ["system", "error"])
def test_a_notice_or_fault_of_another_client_keeps_its_type(kind: str) -> None:
    one, other = Client(session_id="s1"), Client(session_id="s1")
    one.say(id="m1", type=kind, session_id="s1", content="oh", severity="warning")
    [frame] = other.messages(Posted("s1", one.requested(Post).entry, False))
    assert (frame["type"], frame["content"], frame["severity"]) == (kind, "oh", "warning")


def test_a_notice_of_another_format_is_a_system_message() -> None:
    author = Author("system", "system")
    frame = shown(Posted("s1", words("liu has joined", author=author, kind=Kind.POST), False))
    assert (frame["type"], frame["content"]) == ("system", "liu has joined")
    assert shown_by_the_original(frame) == Packet("system", "liu has joined", True)


def test_what_an_agent_posts_is_an_agents_text() -> None:
    frame = shown(Posted("s1", words(author=Author("rita", "agent"), kind=Kind.POST), False))
    assert (frame["from_agent"], frame["streaming"]) == ("rita", False)
    assert "from_user" not in frame
    assert shown_by_the_original(frame) == Packet("rita", "hello", True)


def test_an_amended_entry_is_shown_again() -> None:
    assert shown(Amended("s1", words("hello again"), False))["content"] == "hello again"


def test_what_a_message_has_no_member_for_is_in_its_metadata() -> None:
    entry = words(
        attachments=(Attachment("image", url="https://example.org/a.png", name="a.png"),),
        mentions=(Author("rita", "agent"),),
        metadata=Raw(b'{"mood":"calm"}'),
        prompt_id="p1",
    )
    metadata = shown(Said("s1", entry, False))["metadata"]
    assert metadata["mood"] == "calm"
    assert metadata["prompt_id"] == "p1"
    assert metadata["attachments"] == [
        {"kind": "image", "url": "https://example.org/a.png", "name": "a.png"}
    ]
    assert metadata["mentions"] == [{"id": "rita", "type": "agent", "name": "rita"}]


def test_a_part_of_what_an_agent_says_elsewhere_is_a_streaming_frame() -> None:
    data = Raw(msgspec.json.encode({"id": "m1", "content": "It is", "timestamp": NOW}))
    event = Notified("s1", "tkr.streaming", Author("rita", "agent"), data)
    [frame] = Client(session_id="s1").messages(event)
    assert (frame["id"], frame["from_agent"], frame["content"]) == ("m1", "rita", "It is")
    assert (frame["streaming"], frame["turn_complete"]) == (True, False)


@pytest.mark.parametrize("kind", ["typing", "tkr.streaming"])
def test_any_other_sign_is_not_shown(kind: str) -> None:
    event = Notified("s1", kind, LIU, Raw(b"[]" if kind == "tkr.streaming" else b"{}"))
    assert Client(session_id="s1").show(event) == []


@given(standard_messages().filter(lambda message: message["type"] in ("text", "system", "error")))
def test_a_message_reaches_another_client_of_this_format_with_all_its_members(
    message: dict[str, Any],
) -> None:
    message |= {"session_id": "s1", "streaming": False, "content": message.get("content") or "x"}
    one, other = Client(session_id="s1"), Client(session_id="s1", user="bob")
    one.send("message", message)
    [request] = [each for each in one.requests if isinstance(each, Say | Post)]
    said = Said if isinstance(request, Say) else Posted
    [frame] = other.messages(said("s1", request.entry, False))
    changed = {"metadata", "turn_complete", "from_user", "from_agent", "to_agent"}
    kept = [name for name in message if name not in changed and message[name] is not None]
    assert {name: frame[name] for name in kept} == {name: message[name] for name in kept}
    assert message.get("metadata", {}).items() <= frame.get("metadata", {}).items()
    assert (frame.get("from_agent") or frame["from_user"]) == (message.get("from_agent") or True)
    assert shown_by_the_original(frame) is not None
    for name, legacy in (("session_id", "sessionId"), ("in_reply_to", "inReplyTo")):
        assert frame.get(name) == frame.get(legacy)


@given(st.text(min_size=1))
def test_words_are_shown_as_they_were_said(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert shown(Said("s1", words(text), False))["content"] == text
