"""Prompts of every type: as clients can show them, and what their answers mean."""

from __future__ import annotations

from typing import Any

import pytest

from busd.gateway import Answer
from busd_plugins.agentiq.dialect import AgentIQ
from tests.gateway.agentiq.asking import answer, ask, connect, errors
from tests.gateway.stage.line import Frame, Line

THREE = [
    {"id": "p", "label": "Post", "value": "post"},
    {"id": "c", "label": "Call, please", "value": "call"},
    {"id": "v", "label": "Visit", "value": "visit"},
]


def content(line: Line, **about: Any) -> Frame:
    """Return the content of a prompt as it is sent."""
    ask(line)
    [frame] = line.ask(**{"text": "How?", **about})
    found: Frame = frame["content"]
    return found


def test_a_notification_needs_no_answer() -> None:
    line = connect()
    told = content(line, input_type="notification")
    assert told == {"input_type": "notification", "text": "How?"}
    [(code, details)] = errors(answer(line, "thanks"))
    assert (code, details[:9]) == ("invalid_message", "parent_id")


@pytest.mark.parametrize(("seconds", "shown"), [(0.0, 1), (0.4, 1), (1.0, 1), (59.5, 60)])
def test_the_time_that_is_left_is_a_whole_number_above_zero(seconds: float, shown: int) -> None:
    told = content(connect(), input_type="text", seconds_left=seconds)
    assert (told["timeout"], bool(told["error"])) == (shown, True)


def test_a_prompt_without_a_limit_has_no_timeout() -> None:
    assert not {"timeout", "error"} & set(content(connect(), input_type="text"))


def test_a_binary_choice_of_three_is_a_radio() -> None:
    """Clients reject a binary choice that has not exactly two options."""
    assert content(connect(), input_type="binary_choice", options=THREE)["input_type"] == "radio"


def test_a_choice_without_options_is_a_text() -> None:
    assert content(connect(), input_type="dropdown")["input_type"] == "text"


@pytest.mark.parametrize("kind", ["binary_choice", "radio", "checkbox", "dropdown"])
def test_an_option_may_be_named_by_value_id_or_label(kind: str) -> None:
    line = connect()
    for text in ("call", "c", "Call, please", " CALL, PLEASE "):
        content(line, input_type=kind, options=THREE[:2])
        assert answer(line, text) == []
        assert line.asked_for(Answer)[-1].values == ("call",)


@pytest.mark.parametrize(
    "texts",
    [
        ("post", "visit"),
        ("post, visit",),
        ("Post\nVisit\n",),
        ('["post", "visit"]',),
        ("p,v,post",),
    ],
)
def test_a_checkbox_takes_several_options(texts: tuple[str, ...]) -> None:
    line = connect()
    content(line, input_type="checkbox", options=THREE)
    assert answer(line, *texts) == []
    assert line.asked_for(Answer)[0].values == ("post", "visit")


def test_the_latest_prompt_of_a_turn_is_the_one_that_is_answered() -> None:
    line = connect()
    content(line, input_type="text", id="p1")
    [second] = line.ask(input_type="text", text="And when?", id="p2")
    answer(line, "now")
    answer(line, "so")
    assert [each.prompt_id for each in line.asked_for(Answer)] == ["p2", "p1"]
    [first] = line.ask(input_type="text", text="Where?", id="p3")
    line.ask(input_type="text", text="Why?", id="p4")
    answer(line, "here", parent=first["id"])
    assert line.asked_for(Answer)[-1].prompt_id == "p3", "named by the id of its frame"
    assert len(errors(answer(line, "again", parent=second["id"]))) == 1


def test_an_answer_finds_its_conversation_by_its_prompt() -> None:
    """Messages of the first version of the format have no conversation_id."""
    line = connect("")
    ask(line, message_id="m1", thread_id="t1")
    line.ask(input_type="text", text="Why?")
    ask(line, message_id="m2", thread_id="t2")
    assert answer(line, "because", parent="m1") == []
    assert line.asked_for(Answer)[0].conversation == "t1"


def test_a_client_may_want_only_prompts_that_it_has_inputs_for() -> None:
    line = Line(AgentIQ, {"conversation_id": "c1", "prompts": "simple"})
    line.open()
    assert content(line, input_type="dropdown", options=THREE)["input_type"] == "radio"
    told = content(line, input_type="checkbox", options=THREE)
    shown = {"text": "How?\n(Post / Call, please / Visit)", "placeholder": "", "required": True}
    assert told == {"input_type": "text", **shown}
    assert answer(line, "Post, Visit") == []
    assert line.asked_for(Answer)[0].values == ("post", "visit")
