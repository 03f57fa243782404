"""What holds for any input and any order of events."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from busd.gateway import Answer, Post, Say
from busd_plugins.agentiq.faults import CODES
from busd_plugins.agentiq.messages import MISTAKEN, SECRETS, TYPES
from tests.gateway.agentiq.asking import ask, connect, texts
from tests.gateway.stage.line import Frame, given

_TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=8,
)
_NAMES = st.sampled_from(
    [
        *("id", "thread_id", "parent_id", "conversation_id", "content", "messages", "role"),
        *("type", "text", "schema_type", "user", "security", "payload", "image_url", "file"),
    ]
)
_NESTED = st.recursive(
    _VALUES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=4,
)
_OBJECTS = st.dictionaries(_NAMES, _NESTED, max_size=5)
_MEMBERS = ("type", "id", "thread_id", "parent_id", "conversation_id", "content", "timestamp")
_STATUS = {"in_progress", "complete"}


def check(frame: Frame) -> None:
    """Check that a frame is one that clients accept."""
    if frame["type"] == "auth_response_message":
        assert set(frame) == {"type", "status", "user_id", "payload", "timestamp"}
        return
    assert all(frame[name] for name in _MEMBERS), frame
    assert all(isinstance(frame[name], str) for name in _MEMBERS if name != "content"), frame
    assert frame["status"] in _STATUS
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", frame["timestamp"])
    content = frame["content"]
    if frame["type"] == "system_response_message":
        assert set(content) == {"text"}
        assert (content["text"] is None) == (frame["status"] == "complete")
    elif frame["type"] == "system_intermediate_message":
        assert {type(content[name]) for name in ("name", "payload")} == {str}
        assert len(content) == 2
    elif frame["type"] == "error_message":
        assert content["code"] in CODES
        assert all(content[name] and isinstance(content[name], str) for name in content)
        assert set(content) == {"code", "message", "details"}
    else:
        assert frame["type"] == "system_interaction_message"
        assert {"input_type", "text"} <= set(content)


def without_secrets(raw: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in raw.items() if name not in SECRETS}
    within = {
        name: without_secrets(kept[name]) for name in MISTAKEN if isinstance(kept.get(name), dict)
    }
    return kept | within


@settings(max_examples=100, deadline=None)
@for_all(st.sampled_from(TYPES), _OBJECTS)
def test_every_object_is_understood_or_answered_and_nothing_of_it_is_lost(
    kind: str, members: dict[str, Any]
) -> None:
    line = connect()
    raw = {**members, "type": kind}
    for frame in line.send(msgspec.json.encode(raw).decode()):
        check(frame)
    for effect in line.asked_for(Say) + line.asked_for(Post):
        kept = given(effect.entry.original)
        assert kept == without_secrets(raw)


@settings(max_examples=100, deadline=None)
@for_all(_TEXTS | _VALUES.map(str))
def test_every_text_is_answered(text: str) -> None:
    line = connect()
    for frame in line.send(text):
        check(frame)
    assert line.closed is None


@settings(max_examples=100, deadline=None)
@for_all(_TEXTS.filter(str.strip), _VALUES, st.sampled_from(["generate", "chat_stream"]))
def test_the_words_and_every_other_member_arrive(text: str, extra: Any, schema: str) -> None:
    line = connect()
    ask(line, text, "m1", schema_type=schema, extra=extra)
    [say] = line.asked_for(Say)
    assert (say.entry.text, say.entry.id) == (text, "m1")
    assert given(say.entry.original)["extra"] == extra


_EVENTS = st.lists(
    st.sampled_from(["say", "delta", "step", "ask", "answer", "reply", "fail", "cancel"]),
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@for_all(_EVENTS, st.sampled_from(["generate", "chat_stream"]))
def test_a_turn_has_one_end_unless_a_message_takes_its_place(
    events: list[str], schema: str
) -> None:
    line = connect()
    said: dict[str, str] = {}  # by the id of a message: how its turn has ended
    frames: list[Frame] = []
    for number, event in enumerate(events):
        current = list(said)[-1] if "c1" in line.turns else ""
        if event == "say":
            if current:
                said[current] = "replaced"
            said[f"m{number}"] = ""
            frames += ask(line, "hi", f"m{number}", schema_type=schema)
        elif not current:
            continue
        elif event == "delta":
            frames += line.delta("x ")
        elif event == "step":
            frames += line.step(id=f"s{number}", name="look", tool="eyes", status="complete")
        elif event == "ask":
            frames += line.ask(id=f"p{number}", input_type="text", text="Why?")
        elif event == "answer" and line.prompts:
            message = {"type": "user_interaction_message", "parent_id": current, "content": "so"}
            frames += line.send(message)
            assert len(line.asked_for(Answer)) > 0
        elif event in ("reply", "fail", "cancel"):
            said[current] = event
            ends = {"reply": lambda: line.reply("x "), "cancel": line.cancel}
            frames += ends.get(event, lambda: line.fail("broken", "it broke"))()
    for frame in frames:
        check(frame)
    for message_id, how in said.items():
        own = [frame for frame in frames if frame["parent_id"] == message_id]
        is_over = how in ("reply", "fail", "cancel")
        assert texts(own).count(None) == is_over
        if is_over:
            assert own[-1]["status"] == "complete", "nothing comes after the end"
        if how == "reply":
            assert "".join(filter(None, texts(own))).endswith("x ")
        assert [frame["type"] for frame in own].count("error_message") == (how == "fail")
