"""What does not fit is answered by an error that names the member; the connection lives on."""

from __future__ import annotations

from typing import Any

import pytest

from busd.gateway import Answer, Entry, Refused, Say, SocketFrame
from tests.gateway.agentiq.asking import answer, ask, connect, errors, texts, user_message
from tests.gateway.stage.line import Line

CONTENT = "invalid_user_message_content"


def works(line: Line) -> bool:
    """Return whether the client can still talk to its agent."""
    ask(line, "still there?", "last")
    return texts(line.reply("yes")) == ["yes", None]


@pytest.mark.parametrize("frame", ["", "hello", "{", "[]", "7", "null", '"text"', "[" * 100_000])
def test_a_frame_that_is_no_object_is_an_error(frame: str) -> None:
    line = connect()
    [error] = line.send(frame)
    assert error["content"]["code"] == "invalid_message"
    assert (error["conversation_id"], error["parent_id"]) == ("c1", "default")
    assert works(line)


@pytest.mark.parametrize("depth", [10, 400, 600, 800, 1_000, 5_000, 100_000])
def test_a_frame_nested_too_deeply_is_an_error(depth: int) -> None:
    line = connect()
    nested = "[" * depth + "]" * depth
    frames = line.send('{"type": "user_message", "content": "hi", "a": ' + nested + "}")
    if not line.asked_for(Say):
        assert errors(frames)[0][1].removeprefix("not JSON: ") == "nested too deeply"
    if not 500 < depth <= 1_000:  # where the limit is depends on the version of Python
        assert bool(line.asked_for(Say)) == (depth < 500)
    assert works(line)


def test_an_event_of_another_protocol_is_an_error() -> None:
    line = connect()
    [error] = list(line.dialect.receive(SocketFrame("/", "message")))
    assert "not a text frame" in str(error)


def test_an_unknown_type_is_named() -> None:
    line = connect()
    [(code, details)] = errors(line.send({"type": "user_massage", "id": "m1"}))
    assert code == "invalid_message_type"
    assert details.startswith("type: unknown: 'user_massage'")
    assert works(line)


@pytest.mark.parametrize("kind", [{}, {"type": None}, {"type": ""}])
def test_a_missing_type_is_named(kind: dict[str, Any]) -> None:
    [(code, details)] = errors(connect().send({"id": "m1", **kind}))
    assert code == "invalid_message"
    assert details.startswith("type: missing")


def test_a_type_that_is_no_text_is_named() -> None:
    [(code, details)] = errors(connect().send({"type": ["user_message"]}))
    assert (code, details[:5]) == ("invalid_message_type", "type:")


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (None, "content"),
        (7, "content"),
        ({}, "content.messages"),
        ({"messages": None}, "content.messages"),
        ({"messages": []}, "content.messages"),
        ({"messages": "hello"}, "content.messages"),
        ({"messages": ["hello"]}, "content.messages[0]"),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, "content.messages"),
        ({"messages": [{"role": "user"}]}, "content.messages[0].content"),
        ({"messages": [{"role": "user", "content": 7}]}, "content.messages[0].content"),
        ({"messages": [{"role": "user", "content": ""}]}, "content.messages[0].content"),
        ({"messages": [{"role": "user", "content": [7]}]}, "content.messages[0].content[0]"),
        ([{}], "content[0].type"),
        ([{"type": "hologram"}], "content[0].type"),
        ([{"type": "text"}], "content[0].text"),
        ([{"type": "text", "text": 7}], "content[0].text"),
        ([{"type": "text", "text": "  "}], "content[0].text"),
        ([{"type": "image_url", "image_url": 7}], "content[0].image_url"),
        ([{"type": "image_url", "image_url": {}}], "content[0].image_url.url"),
        ([{"type": "image_url", "image_url": "javascript:1"}], "content[0].image_url.url"),
        ([{"type": "input_audio", "input_audio": {}}], "content[0].input_audio.data"),
        ([{"type": "input_audio", "input_audio": {"data": "%%"}}], "content[0].input_audio.data"),
        ([{"type": "file", "file": {}}], "content[0].file.file_id"),
        ([{"type": "file", "file": {"file_data": "%%"}}], "content[0].file.file_data"),
    ],
)
def test_content_that_does_not_fit_is_named(content: Any, field: str) -> None:
    line = connect()
    frames = line.send({**user_message(), "content": content})
    [(code, details)] = errors(frames)
    assert (code, details.split(": ")[0]) == (CONTENT, field)
    assert texts(frames) == [None], "the message wanted an answer, and this is its end"
    assert {frame["parent_id"] for frame in frames} == {"m1"}
    assert line.asked_for(Say) == []
    assert works(line)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("id", True),
        ("id", ["m1"]),
        ("thread_id", {}),
        ("conversation_id", 1.5),
        ("schema_type", 7),
        ("user", 7),
        ("user", {"name": 7}),
        ("id", "x" * 257),
    ],
)
def test_a_member_that_does_not_fit_is_named(member: str, value: Any) -> None:
    line = connect()
    frames = line.send({**user_message(), member: value})
    [(code, details)] = errors(frames)
    assert code == "invalid_message"
    assert details.startswith((f"{member}:", f"{member}.name:"))
    assert texts(frames) == [None]
    assert works(line)


def test_null_is_the_same_as_absent() -> None:
    line = connect()
    names = ("thread_id", "conversation_id", "schema_type", "user", "security", "timestamp")
    message = {**user_message(), **dict.fromkeys((*names, "error", "id"))}
    assert line.send(message) == []
    assert texts(line.reply("hi")) == ["hi", None]


def test_a_number_is_an_id() -> None:
    line = connect()
    ask(line, message_id=7)  # type: ignore[arg-type]  # as a client may do
    assert {frame["parent_id"] for frame in line.reply("hi")} == {"7"}


def test_a_message_without_an_id_gets_one() -> None:
    line = connect()
    message = user_message()
    del message["id"]
    assert line.send(message) == []
    [say] = line.asked_for(Say)
    assert {frame["parent_id"] for frame in line.reply("hi")} == {say.entry.id}


def test_an_id_may_be_used_again() -> None:
    """The toolkit asks nobody for unique ids: scripts send the same one each time."""
    line = connect()
    for text in ("one", "two", "two"):
        assert ask(line, text) == []
        assert {frame["parent_id"] for frame in line.reply(text)} == {"m1"}
    assert len({say.entry.id for say in line.asked_for(Say)}) == 3


def test_a_text_of_a_megabyte_arrives_whole() -> None:
    line = connect()
    text = "ab c" * 250_000
    assert ask(line, text) == []
    assert line.asked_for(Say)[0].entry.text == text
    assert texts(line.reply(text)) == [text, None]


def test_a_reply_to_an_unknown_prompt_is_refused() -> None:
    line = connect()
    ask(line)
    line.ask(input_type="text", text="Why?")
    [(code, details)] = errors(answer(line, "because", parent="m0"))
    assert code == "invalid_message"
    assert details.startswith("parent_id: there is no open prompt")
    assert line.asked_for(Answer) == []
    assert answer(line, "because") == []


def test_a_reply_to_another_conversations_prompt_is_refused() -> None:
    line = connect()
    ask(line)
    line.ask(input_type="text", text="Why?")
    ask(line, message_id="m2", conversation_id="c2")
    [(code, _)] = errors(answer(line, "because", conversation_id="c2"))
    assert code == "invalid_message"
    assert line.asked_for(Answer) == []


def test_a_second_answer_to_a_prompt_is_refused() -> None:
    line = connect()
    ask(line)
    line.ask(input_type="text", text="Why?")
    assert answer(line, "because") == []
    refused = ("invalid_message", "parent_id: the prompt was already answered")
    assert errors(answer(line, "no, because")) == [refused]


def test_an_answer_without_parent_is_for_the_only_prompt() -> None:
    line = connect()
    ask(line)
    [missing] = errors(answer(line, "because", parent=""))
    assert missing[1].startswith("parent_id: missing")
    line.ask(input_type="text", text="Why?")
    assert answer(line, "because", parent="") == []


def test_a_checkbox_with_an_unknown_option_is_refused_and_stays_open() -> None:
    line = connect()
    ask(line)
    options = [{"id": name, "label": name.title(), "value": name} for name in ("post", "call")]
    line.ask(input_type="checkbox", text="How?", options=options)
    assert errors(answer(line, "post", "pigeon")) == [(CONTENT, "pigeon")]
    assert answer(line, "post", "call") == []
    assert line.asked_for(Answer)[-1].values == ("post", "call")


def test_an_answer_with_too_many_values_is_refused() -> None:
    """Each is compared with every option."""
    line = connect()
    ask(line)
    line.ask(input_type="checkbox", text="How?", options=[{"id": "a", "label": "A", "value": "a"}])
    for texts_sent in (["a"] * 257, [",".join("a" * 257)], [str(["a"] * 257).replace("'", '"')]):
        [(code, details)] = errors(answer(line, *texts_sent))
        assert code == CONTENT
        assert details.endswith(": more than 256 values")
    assert line.asked_for(Answer) == []
    assert answer(line, ",".join("a" * 256)) == []


def test_a_message_of_too_many_parts_is_refused_and_a_long_history_is_not() -> None:
    line = connect()
    [(code, details)] = errors(line.send({**user_message(), "content": ["a"] * 1_001}))
    assert (code, details) == (CONTENT, "content: more than 1000 parts")
    history = [{"role": "assistant", "content": ["a"] * 1_001}] * 100
    messages = [*history, {"role": "user", "content": "hello"}]
    assert line.send({**user_message(), "content": {"messages": messages}}) == []
    assert line.asked_for(Say)[0].entry.text == "hello"


def test_a_required_answer_that_is_empty_is_refused() -> None:
    line = connect()
    ask(line)
    line.ask(input_type="text", text="Why?")
    [(code, details)] = errors(answer(line, " "))
    assert (code, details) == (
        CONTENT,
        "content.messages[0].content[0].text: empty; answer the prompt",
    )


def test_an_optional_answer_may_be_empty() -> None:
    line = connect()
    ask(line)
    line.ask(input_type="text", text="Why?", required=False)
    assert answer(line, "") == []
    line.ask(
        input_type="radio",
        text="Which?",
        required=False,
        options=[{"id": "a", "label": "A", "value": "a"}],
    )
    assert answer(line, "") == []
    assert [each.values for each in line.asked_for(Answer)] == [("",), ()]


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("busy", "workflow_error"),
        ("limit", "workflow_error"),
        ("agent", "workflow_error"),
        ("author", "user_auth_error"),
        ("invalid", "invalid_message"),
        ("something new", "unknown_error"),
    ],
)
def test_words_that_the_gateway_refuses_end_with_an_error(rule: str, code: str) -> None:
    line = connect()
    say = Say("c1", Entry())
    line.refusals[Say] = Refused(say, rule, "try again later", detail="disk")
    frames = ask(line)
    assert errors(frames) == [(code, "disk")]
    assert frames[1]["content"]["message"] == "try again later"
    assert texts(frames) == [None]
    assert works(line)


def test_a_frame_that_the_host_keeps_back_is_reported() -> None:
    line = connect()
    frames = line.refuse("limit", "the frame is larger than 4 MiB")
    assert errors(frames) == [("workflow_error", "limit")]
    assert texts(frames) == [None]
    ask(line)
    frames = line.refuse("limit", "the frame is larger than 4 MiB")
    assert texts(frames) == [], "the answer that comes in has not ended"


def test_comments_are_accepted() -> None:
    line = connect()
    assert line.send('{"type": "user_message", // mine\n "content": "hi" /* there */,}') == []
    assert line.asked_for(Say)[0].entry.text == "hi"
