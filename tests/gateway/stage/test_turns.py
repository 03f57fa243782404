"""A turn in stage chat: tools, prompts, and what others say meanwhile."""

from __future__ import annotations

import pytest

from busd.gateway import (
    Answer,
    Attachment,
    Author,
    Kind,
    Posted,
    Prompt,
    Prompted,
    Replied,
    Said,
    Say,
    Step,
    Stepped,
    Turn,
    TurnBegan,
    TurnEnd,
    TurnEnded,
)
from tests.gateway.stage.asking import connect, stages
from tests.gateway.stage.line import AGENT, NOW

DORA = Author("dora", name="Dora")
OPTIONS = [
    {"id": "r", "label": "Rye", "value": "rye"},
    {"id": "w", "label": "Wheat", "value": "wheat"},
    {"id": "ws", "label": "Wheat and spelt", "value": "both"},
]


# Tools


def test_a_step_without_a_tool_has_no_stage() -> None:
    line = connect()
    line.send("bake")
    assert line.step(id="1", name="think", status="in_progress") == []
    assert line.step(id="1", name="think", status="complete") == []
    assert stages(line.reply("Done.")) == [("initial_response", "Done.")]


def test_a_tool_has_one_end() -> None:
    line = connect()
    line.send("bake")
    oven = {"id": "1", "name": "bake", "tool": "oven"}
    line.step(**oven, status="in_progress")
    assert line.step(**oven, status="in_progress") == []
    assert len(line.step(**oven, payload=None, status="complete")) == 1
    assert line.step(**oven, status="complete") == []


def test_a_tool_that_does_not_finish_gets_an_error() -> None:
    line = connect()
    line.send("bake")
    line.step(id="1", name="bake", tool="oven", status="in_progress")
    assert stages(line.reply("Sorry.")) == [
        ("tool_exec", "The tool has not finished."),
        ("final_response", "Sorry."),
    ]


def test_a_turn_that_is_cancelled_has_an_end() -> None:
    line = connect()
    line.send("bake")
    line.delta("I begin")
    frames = line.cancel()
    assert stages(frames) == [
        ("initial_response", "I begin"),
        ("cancelled", "The answer was stopped."),
    ]
    assert frames[-1]["status"] == "warning"


# Prompts


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("rye", ("rye",)),
        ("RYE ", ("rye",)),
        ("r", ("rye",)),
        ("1", ("rye",)),
        ("3", ("both",)),
        ("wheat", ("wheat",)),
        ("wheat and", ("both",)),
        ("ry", ("rye",)),
    ],
)
def test_an_option_is_chosen_by_what_is_typed(text: str, values: tuple[str, ...]) -> None:
    line = connect()
    line.send("bread")
    line.ask(input_type="radio", text="Which?", options=OPTIONS)
    assert line.send(text) == []
    assert line.asked_for(Answer)[0].values == values


@pytest.mark.parametrize("text", ["", "x", "0", "4", "99999", "whe", "rye, wheat"])
def test_what_is_no_option_is_asked_for_again(text: str) -> None:
    line = connect()
    line.send("bread")
    line.ask(input_type="radio", text="Which?", options=OPTIONS)
    [(kind, message)] = stages(line.send(text))
    assert kind == "exception"
    assert "3. Wheat and spelt" in message
    assert line.asked_for(Answer) == []


@pytest.mark.parametrize("text", ["rye, both", "1;3", "Rye\n3", "r,ws"])
def test_a_checkbox_takes_several_options(text: str) -> None:
    line = connect()
    line.send("bread")
    line.ask(input_type="checkbox", text="Which?", options=OPTIONS)
    assert line.send(text) == []
    assert line.asked_for(Answer)[0].values == ("rye", "both")


def test_an_optional_prompt_may_be_left_open() -> None:
    line = connect()
    line.send("bread")
    line.ask(input_type="text", text="Which?", required=False)
    assert line.send("") == []
    line.ask(input_type="radio", text="Which?", options=OPTIONS, required=False)
    assert line.send(" ") == []
    assert [each.values for each in line.asked_for(Answer)] == [("",), ()]


def test_a_notification_needs_no_answer() -> None:
    line = connect()
    line.send("bread")
    assert stages(line.ask(input_type="notification", text="Hot!")) == [("notification", "Hot!")]
    line.send("thanks")
    assert [each.entry.text for each in line.asked_for(Say)] == ["bread", "thanks"]


def test_after_its_time_a_text_answers_no_prompt() -> None:
    line = connect()
    line.send("bread")
    line.ask(input_type="text", text="Which?")
    assert stages(line.time_out()) == [
        ("initial_response", ""),
        ("exception", "nobody answered in time"),
    ]
    line.send("rye")
    assert [each.entry.text for each in line.asked_for(Say)] == ["bread", "rye"]


# Others in the same conversation


def test_words_of_others_are_shown_with_their_name() -> None:
    line = connect()
    link = Attachment("image", url="https://a.example/b.png", name="map")
    entry = line.entry("look", author=DORA, dialect="group", attachments=(link,))
    [frame] = line.show(Said("c1", entry, is_own=False))
    assert frame["message"] == "Dora: look\n\n[map](https://a.example/b.png)"
    assert (frame["role"], frame["author"]["id"]) == ("user", "dora")
    posted = Posted(
        "c1", line.entry("Dora has left", author=Author("system", "system")), is_own=False
    )
    assert stages(line.show(posted)) == [("message", "system: Dora has left")]
    assert line.show(Posted("c1", line.entry(""), is_own=False)) == []


def test_an_answer_to_somebody_else_is_no_stage_of_an_own_turn() -> None:
    line = connect()
    line.send("bake")
    turn = Turn(id="d1", agent=AGENT, author=DORA, timestamp=NOW)
    step = Step(id="1", name="bake", tool="oven", status="complete")
    prompt = Prompt(id="p9", turn="d1", input_type="text", text="Why?")
    reply = line.entry("Yes.", author=AGENT, kind=Kind.REPLY, turn="d1")
    frames = line.show(
        TurnBegan("c1", turn, is_own=False),
        Stepped("c1", turn, step, is_own=False),
        Prompted("c1", turn, prompt, is_own=False),
        Replied("c1", turn, reply, is_own=False),
        TurnEnded("c1", turn, TurnEnd.REPLIED, is_own=False),
    )
    assert stages(frames) == [("message", "Bob: Why?"), ("message", "Bob: Yes.")]
    assert line.send("hello") == []
    assert len(line.asked_for(Say)) == 2


def test_what_was_answered_is_not_answered_again() -> None:
    line = connect()
    line.send("bread")
    line.ask(input_type="radio", text="Which?", options=OPTIONS)
    line.send("1")
    line.send("2")
    assert [each.values for each in line.asked_for(Answer)] == [("rye",)]
    assert [each.entry.text for each in line.asked_for(Say)] == ["bread", "2"]


@pytest.mark.parametrize("text", ["rye, oats", "1, 9", ","])
def test_a_checkbox_with_an_unknown_option_is_asked_for_again(text: str) -> None:
    line = connect()
    line.send("bread")
    line.ask(input_type="checkbox", text="Which?", options=OPTIONS)
    [(kind, _)] = stages(line.send(text))
    assert (kind, line.asked_for(Answer)) == ("exception", [])


def test_html_is_text_like_any_other() -> None:
    line = connect()
    line.send("<script>alert(1)</script> @nobody")
    [said] = line.asked_for(Say)
    assert said.entry.text == "<script>alert(1)</script> @nobody"
    [(_, content)] = stages(line.reply("<b>1 < 2</b>"))
    assert content == "<b>1 < 2</b>"


def test_a_token_in_a_text_proves_nothing_and_is_not_kept() -> None:
    line = connect()
    line.send('{"text": "bread", "token": "secret", "security": {"api_key": "secret"}}')
    [said] = line.asked_for(Say)
    assert "secret" not in repr(said)
