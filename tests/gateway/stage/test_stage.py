"""Stage chat: plain text in, a frame for each stage of an answer out."""

from __future__ import annotations

import pytest

from busd.gateway import (
    Answer,
    Author,
    Close,
    Enter,
    Entry,
    Kind,
    Prompt,
    Refused,
    Say,
    Turn,
)
from busd_plugins.stage.dialect import StageChat
from tests.gateway.stage.asking import connect, stages
from tests.gateway.stage.line import AGENT, NOW, Frame, Line, given, new_conversation

DORA = Author("dora", name="Dora")


# Frames as the format's document shows them


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        ("welcome", {"status": "success", "type": "welcome"}),
        ("initial_response", {"status": "success", "stage": "initial_response"}),
        ("tool_result", {"status": "success", "stage": "tool_result", "tool": "oven"}),
        ("final_response", {"status": "success", "stage": "final_response"}),
        ("exception", {"status": "error", "type": "exception"}),
        ("tool_exec", {"status": "error", "stage": "tool_exec", "tool": "till"}),
        ("tool_args", {"status": "error", "stage": "tool_args", "tool": "till"}),
        ("tool_missing", {"status": "error", "stage": "tool_missing", "tool": "till"}),
        ("goodbye", {"status": "success", "type": "goodbye"}),
    ],
)
def test_every_frame_of_the_document_is_sent(shown: str, wanted: Frame) -> None:
    text = {"tool_result": "response"}.get(shown, "content" if "response" in shown else "error")
    if "type" in wanted:
        text = "message"
    line = Line(StageChat)
    line.open()
    line.send("bake")
    line.step(id="1", name="bake", tool="oven", payload="baked", status="complete")
    for number, code in enumerate(("", "arguments", "missing"), 2):
        failed = {"tool": "till", "payload": "no coins", "status": "failed", "code": code}
        line.step(id=str(number), name="sell", **failed)
    line.reply("Done.")
    line.send("again")
    line.fail("broken", "it broke")
    line.send("exit")
    frames = [each for each in line.frames if shown in (each.get("stage"), each.get("type"))]
    assert frames, shown
    for frame in frames:
        assert {name: frame[name] for name in wanted} == wanted
        assert isinstance(frame[text], str)
        beside = {"message_id", "parent_id", "conversation_id", "timestamp", "sequence"}
        beside |= {"session_id", "tool_call_id", "arguments", "code", "session_info"}
        beside |= {"error"} if shown == "exception" else set()
        assert set(frame) - beside == {*wanted, text}


def test_every_frame_says_where_it_belongs() -> None:
    line = connect()
    line.send("bake")
    line.step(id="1", name="bake", tool="oven", payload="baked", status="complete")
    line.reply("Done.")
    line.send("exit")
    assert [frame["sequence"] for frame in line.frames] == [1, 2, 3, 4, 5]
    assert len({frame["message_id"] for frame in line.frames}) == 5
    assert {frame["session_id"] for frame in line.frames} == {"c1"}
    assert {frame["conversation_id"] for frame in line.frames} == {"s-c1"}
    assert {frame["timestamp"] for frame in line.frames} == {NOW}
    [say] = line.asked_for(Say)
    parents = [None, *[say.entry.id] * 3, None]
    assert [frame.get("parent_id") for frame in line.frames] == parents


# What a client sends


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "  two  spaces ",
        '"quoted"',
        "7",
        "[1, 2]",
        "{not json",
        '{"a": 1}',
        '{"text": 7}',
        "퀸",
    ],
)
def test_a_frame_is_a_text_as_it_stands(text: str) -> None:
    line = connect()
    assert line.send(text) == []
    [say] = line.asked_for(Say)
    assert (say.entry.text, say.conversation, say.entry.author.id) == (text, "c1", "ann")
    assert (say.agents, say.interrupts) == ((), False)


@pytest.mark.parametrize("member", ["text", "content", "message"])
def test_an_object_with_a_text_is_that_text(member: str) -> None:
    line = connect()
    line.send(f'{{"{member}": "hello", "mood": "fine", "token": "secret",}} // sent by a script')
    [say] = line.asked_for(Say)
    assert say.entry.text == "hello"
    assert given(say.entry.original) == {member: "hello", "mood": "fine"}


@pytest.mark.parametrize("text", ["exit", "EXIT", " Exit\n", '{"text": "exit"}'])
def test_exit_ends_the_session(text: str) -> None:
    line = connect()
    assert [kind for kind, _ in stages(line.send(text))] == ["goodbye"]
    assert line.closed == Close()
    assert line.asked_for(Say) == []


def test_an_empty_frame_is_an_error() -> None:
    line = connect()
    assert [kind for kind, _ in stages(line.send(" "))] == ["exception"]
    assert line.send("hello") == []


def test_a_text_of_a_megabyte_arrives_whole() -> None:
    line = connect()
    text = "x" * 1_000_000
    line.send(text)
    assert line.asked_for(Say)[0].entry.text == text
    assert stages(line.reply(text)) == [("initial_response", text)]


def test_words_that_the_gateway_refuses_are_an_error() -> None:
    line = connect()
    line.refusals[Say] = Refused(Say("c1", Entry()), "busy", "the disk is full")
    assert stages(line.send("hello")) == [("exception", "the disk is full")]
    assert line.send("hello") == []
    assert stages(line.refuse("limit", "too large")) == [("exception", "too large")]


# A session


def test_a_session_gets_a_name_by_which_it_is_resumed() -> None:
    line = Line(StageChat)
    [frame] = line.open()
    assert frame["session_id"] == line.asked_for(Enter)[0].conversation
    assert frame["session_info"] == {"is_existing_session": False}


def test_a_client_that_comes_back_is_welcomed_back() -> None:
    line = connect(entered=[new_conversation("c1", is_new=False)])
    [frame] = line.frames
    assert frame["session_info"] == {"is_existing_session": True}
    assert frame["message"].startswith("Welcome back")


def test_a_client_that_comes_back_gets_what_it_has_missed() -> None:
    line = connect()
    entries = [
        line.entry("my own", author=Author("ann"), dialect="stage"),
        line.entry("hi all", author=DORA, dialect="group"),
        line.entry("Hello", author=AGENT, kind=Kind.REPLY, turn="m1"),
        line.entry("it broke", author=AGENT, kind=Kind.FAILURE, turn="m2"),
        line.entry("The oven is hot.", author=AGENT, kind=Kind.REPLY),
    ]
    line = connect(entered=[new_conversation("c1", is_new=False, entries=entries)])
    assert stages(line.frames)[1:] == [
        ("message", "Dora: hi all"),
        ("initial_response", "Hello"),
        ("exception", "it broke"),
        ("message", "Bob: The oven is hot."),
    ]


def test_a_turn_that_runs_goes_on_for_a_client_that_comes_back() -> None:
    turn = Turn(id="m1", agent=AGENT, author=Author("ann"), text="Well. ", timestamp=NOW)
    prompt = Prompt(id="p1", turn="m1", input_type="text", text="Why?", seconds_left=9.6)
    entered = new_conversation("c1", is_new=False, turns=[turn], prompts=[prompt])
    line = connect(entered=[entered])
    assert stages(line.frames)[1:] == [("prompt", "Why?")]
    assert line.frames[-1]["timeout"] == 10
    assert line.send("because") == []
    assert line.asked_for(Answer)[0].values == ("because",)
    assert stages(line.reply("Well. I see.")) == [("initial_response", "Well. I see.")]


def test_a_turn_that_has_used_tools_goes_on_with_its_last_stage() -> None:
    turn = Turn(
        id="m1", agent=AGENT, author=Author("ann"), text="Hm", timestamp=NOW, has_steps=True
    )
    line = connect(entered=[new_conversation("c1", is_new=False, turns=[turn])])
    assert stages(line.frames)[1:] == [("initial_response", "Hm")]
    assert stages(line.reply("Done.")) == [("final_response", "Done.")]


def test_an_unknown_client_is_told_why_and_disconnected() -> None:
    line = connect(user="")
    assert [kind for kind, _ in stages(line.frames)] == ["exception"]
    assert line.closed is not None
    assert line.closed.code == 1008


def test_a_session_that_cannot_be_entered_now_is_entered_with_the_next_message() -> None:
    line = Line(StageChat, {"session_id": "c1"})
    line.refusals[Enter] = Refused(Enter("c1"), "busy", "try again")
    assert stages(line.open()) == [("exception", "try again")]
    assert [kind for kind, _ in stages(line.send("hello"))] == ["welcome"]
    assert len(line.asked_for(Say)) == 1
