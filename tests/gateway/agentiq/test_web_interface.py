"""What the toolkit's own web interface needs beyond its messages."""

from __future__ import annotations

from typing import Any

from busd.gateway import Answer, Refused
from busd_plugins.agentiq.dialect import AgentIQ
from tests.gateway.agentiq.asking import answer, ask, connect, errors, texts
from tests.gateway.stage.line import Frame, Line

BREADS = [{"id": name, "label": name.title(), "value": name} for name in ("rye", "wheat", "spelt")]


def simple() -> Line:
    """Return the line of a web interface, which has asked something."""
    line = Line(AgentIQ, {"conversation_id": "c1", "prompts": "simple"})
    line.open()
    ask(line)
    return line


# It closes a prompt when its user has answered, and takes no other words until the turn ends.


def test_a_prompt_whose_answer_is_refused_is_put_again() -> None:
    line = simple()
    [first] = line.ask(input_type="checkbox", text="Which?", options=BREADS, seconds_left=30)
    [error, again] = answer(line, "pigeon")
    assert errors([error]) == [("invalid_user_message_content", "pigeon")]
    assert again == {**first, "id": again["id"]}
    assert again["id"] != first["id"], "each frame has an id of its own"
    [error, third] = answer(line, " ")
    assert third == {**first, "id": third["id"]}
    assert answer(line, "rye, spelt") == []
    assert line.asked_for(Answer)[-1].values == ("rye", "spelt")


def test_a_prompt_that_is_put_again_has_the_time_that_is_left() -> None:
    line = simple()
    line.ask(input_type="text", text="Why?", seconds_left=30)
    line.dialect.hello.now = lambda: "2025-01-13T10:00:12.900Z"
    assert answer(line, "")[-1]["content"]["timeout"] == 18
    line.dialect.hello.now = lambda: "2025-01-13T10:01:00.000Z"  # it is over
    assert answer(line, "")[-1]["content"]["timeout"] == 1


def test_a_prompt_that_is_put_again_and_again_takes_no_memory() -> None:
    line = simple()
    line.ask(input_type="text", text="Why?")
    prompts = line.dialect._display.rooms["c1"].prompts  # type: ignore[attr-defined]
    known = len(prompts._names)
    for _ in range(20):
        answer(line, "")
    assert len(prompts._names) == known


def test_a_prompt_that_is_not_open_is_not_put_again() -> None:
    line = simple()
    line.ask(input_type="text", text="Why?")
    assert answer(line, "because") == []
    assert [frame["type"] for frame in answer(line, "because")] == ["error_message"]


def test_an_answer_that_the_gateway_cannot_keep_may_be_given_again() -> None:
    line = simple()
    line.ask(input_type="text", text="Why?")
    line.refusals[Answer] = Refused(Answer("c1", "p1", (), None), "busy", "the disk is full")  # type: ignore[arg-type]  # is not looked at
    assert [frame["type"] for frame in answer(line, "so")] == [
        "error_message",
        "system_interaction_message",
    ]
    assert answer(line, "so") == []


def test_clients_that_keep_their_prompts_open_get_them_once() -> None:
    line = connect()
    ask(line)
    line.ask(input_type="checkbox", text="Which?", options=BREADS)
    assert [frame["type"] for frame in answer(line, "pigeon")] == ["error_message"]


# It replaces a step by its next frame, with all that it has put into the step.


def step(line: Line, step_id: str, status: str = "in_progress", **about: Any) -> Frame:
    [frame] = line.step(id=step_id, name=step_id, status=status, **about)
    return frame


def within(frame: Frame) -> list[Any]:
    """Return the names of the steps within a step, each with those within it."""
    return [[each["id"], *within(each)] for each in frame.get("intermediate_steps", ())]


def test_a_step_brings_along_the_steps_within_it() -> None:
    line = connect()
    ask(line)
    assert within(step(line, "bake")) == []
    step(line, "knead", parent="bake")
    step(line, "fold", "complete", parent="knead", payload="3 times")
    assert within(step(line, "knead", "complete", parent="bake")) == [["fold"]]
    step(line, "rest", "complete", parent="bake")
    done = step(line, "bake", "complete")
    assert within(done) == [["knead", ["fold"]], ["rest"]]
    [knead, rest] = done["intermediate_steps"]
    assert (knead["status"], rest["status"]) == ("complete", "complete")
    assert knead["intermediate_steps"][0]["content"] == {"name": "fold", "payload": "3 times"}
    ask(line, message_id="m2")
    assert within(step(line, "bake")) == [], "another answer has steps of its own"


def test_steps_that_stand_within_each_other_end_somewhere() -> None:
    line = connect()
    ask(line)
    step(line, "a", parent="a")
    step(line, "b", parent="c")
    step(line, "c", parent="b")
    assert within(step(line, "b", parent="c")) == [["c"]]
    assert within(step(line, "c", parent="b")) == []
    assert within(step(line, "a", parent="a")) == []


def test_only_so_much_of_the_steps_within_is_brought_along() -> None:
    line = connect()
    ask(line)
    step(line, "bake")
    for number in range(100):
        step(line, f"s{number}", parent="bake" if number == 0 else f"s{number - 1}")
    deep = within(step(line, "bake"))
    depth = 0
    while deep:
        deep, depth = deep[0][1:], depth + 1
    assert depth == 63
    ask(line, message_id="m2")
    step(line, "bake")
    step(line, "small", "complete", parent="bake", payload="x")
    step(line, "large", "complete", parent="bake", payload="x" * 40_000)
    assert within(step(line, "bake")) == [["small"]]
    step(line, "small", "complete", parent="bake", payload="x" * 40_000)
    [small] = step(line, "bake")["intermediate_steps"]
    assert small["content"]["payload"] == "x", "the frame before is better than none"


# It says how it wants login pages opened, in an `auth_message` that is none.


def test_a_hint_about_login_pages_is_not_answered() -> None:
    line = connect(user="", tokens={"s3cr3t": "ann"})
    hint = {"method": "oauth_mode_preference", "mode": "popup"}
    assert line.send({"type": "auth_message", "payload": hint}) == []
    token = {"method": "jwt", "token": "s3cr3t"}
    assert line.send({"type": "auth_message", "payload": token})[0]["status"] == "success"
    assert line.send({"type": "auth_message", "payload": hint}) == []
    ask(line)
    assert texts(line.reply("hi")) == ["hi", None]


def test_a_prompt_that_is_left_is_found_by_its_message() -> None:
    """The ids of a client's messages may differ from those of the entries."""
    line = connect()
    ask(line, "one")
    line.reply("one")
    ask(line, "two")  # under the same id
    line.ask(id="p1", input_type="text", text="First?")
    line.ask(id="p2", input_type="text", text="Second?")
    assert answer(line, "second") == []
    assert answer(line, "first") == []
    assert [each.prompt_id for each in line.asked_for(Answer)] == ["p2", "p1"]
