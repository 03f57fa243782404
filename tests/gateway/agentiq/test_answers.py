"""An answer in the form that its message wants, and with one end."""

from __future__ import annotations

from busd.gateway import Refused, Say
from tests.gateway.agentiq.asking import answer, ask, connect, errors, notes, texts


def test_an_answer_that_is_wanted_whole_comes_in_one_piece() -> None:
    for schema in ("generate", "chat"):
        line = connect()
        ask(line, schema_type=schema)
        assert line.delta("Hel") + line.delta("lo") == []
        assert texts(line.reply("Hello")) == ["Hello", None]


def test_an_answer_that_is_wanted_in_pieces_comes_in_pieces() -> None:
    for schema in ("generate_stream", "chat_stream", "something else"):
        line = connect()
        ask(line, schema_type=schema)
        assert texts(line.delta("Hel") + line.delta("") + line.delta("lo\n")) == ["Hel", "lo\n"]
        assert texts(line.reply("Hello")) == [None]


def test_what_was_not_streamed_comes_with_the_reply() -> None:
    for streamed, reply, rest in (
        ("", "Hello", ["Hello"]),
        ("Hel", "Hello", ["lo"]),
        ("Hel\n", "Hello", ["lo"]),
        ("\nHello", "Hello", []),
        ("Hi", "Hello", ["\n\nHello"]),
        ("Hello", "", ["\n\n"]),
    ):
        line = connect()
        ask(line)
        line.delta(streamed)
        assert texts(line.reply(reply)) == [*rest, None], (streamed, reply)


def test_an_endless_answer_is_not_streamed_for_ever() -> None:
    line = connect()
    ask(line)
    piece = "x" * 400_000
    assert len(line.delta(piece) + line.delta(piece) + line.delta(piece)) == 2
    assert line.delta("y") == []
    assert texts(line.reply(piece * 3 + "y")) == [piece + "y", None]


def test_a_failed_step_says_so() -> None:
    line = connect()
    ask(line)
    line.step(id="s1", name="look", status="in_progress")
    [frame] = line.step(id="s1", name="look", status="failed", code="missing")
    assert frame["content"] == {"name": "look", "payload": "**Error:** the step has failed"}
    assert (frame["status"], frame["error"]) == ("complete", {"code": "missing"})


def test_a_failure_of_which_nothing_was_shown_has_a_step_that_says_so() -> None:
    """The toolkit's web UI hides an answer that has neither a text nor a step."""
    line = connect()
    ask(line)
    frames = line.fail("broken", "it broke")
    assert notes(frames) == [("The turn has failed", "broken")]
    assert errors(frames) == [("workflow_error", "broken")]
    ask(line, message_id="m2")
    line.delta("I try")
    assert [frame["type"] for frame in line.fail("broken", "it broke")] == [
        "error_message",
        "system_response_message",
    ]


# A second message


def test_nothing_of_an_interrupted_turn_leaks_into_the_next() -> None:
    line = connect()
    ask(line)
    line.delta("one")
    line.ask(input_type="text", text="Go on?")
    assert ask(line, "stop", "m2") == [], "the end of the first would end the second"
    refused = ("invalid_message", "parent_id: the prompt is no longer open: its turn has ended")
    assert errors(answer(line, "yes")) == [refused]
    frames = line.reply("stopped")
    assert texts(frames) == ["stopped", None]
    assert {frame["parent_id"] for frame in frames} == {"m2"}


def test_an_answer_that_comes_at_the_moment_of_the_next_message_is_not_shown() -> None:
    line = connect()
    ask(line)
    effects = line.dialect.receive('{"type": "user_message", "id": "m2", "content": "stop"}')
    assert isinstance(next(effects), Say)
    assert line.delta("late") + line.reply("late") == []


def test_a_message_that_is_refused_interrupts_nothing() -> None:
    line = connect()
    ask(line)
    effects = line.dialect.receive('{"type": "user_message", "id": "m2", "content": "stop"}')
    say = next(effects)
    assert isinstance(say, Say)
    assert line.delta("go") == []
    line.show(Refused(say, "busy", "the disk is full"))
    frames = line._run(effects)
    assert texts(frames) == ["go", None]
    assert [frame["parent_id"] for frame in frames] == ["m1", "root", "m2", "m2"]
    assert texts(line.reply("going")) == ["ing", None]


def test_a_turn_that_another_client_cancels_has_an_end() -> None:
    line = connect()
    ask(line)
    assert texts(line.cancel()) == [None]
