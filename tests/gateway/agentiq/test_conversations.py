"""Which conversation a message belongs to, and what a client sees of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from busd.gateway import (
    Author,
    Enter,
    Kind,
    Leave,
    Prompt,
    PromptClosed,
    Prompted,
    PromptEnd,
    Replied,
    Said,
    Say,
    Task,
    TaskChanged,
    Turn,
    TurnBegan,
    TurnEnd,
    TurnEnded,
    TurnFailed,
)
from busd_plugins.agentiq.dialect import AgentIQ
from tests.gateway.agentiq.asking import answer, ask, connect, errors, notes, texts
from tests.gateway.stage.line import AGENT, NOW, Frame, Line, new_conversation

DORA = Author("dora", name="Dora")
NEW_TURN = Turn(id="m1", agent=AGENT, author=Author("ann"), timestamp=NOW)


# The name of a conversation


def test_a_connection_is_not_greeted() -> None:
    assert connect("").effects == []
    assert connect("c1").frames == []


def test_the_conversation_of_a_message_comes_before_that_of_the_url() -> None:
    line = connect("c1")
    ask(line, conversation_id="c2", thread_id="t1")
    assert line.asked_for(Say)[0].conversation == "c2"
    frames = line.reply("hi")
    assert {frame["conversation_id"] for frame in frames} == {"c2"}
    assert {frame["thread_id"] for frame in frames} == {"t1"}


def test_the_conversation_of_the_url_comes_before_the_thread() -> None:
    line = connect("c1")
    ask(line, thread_id="t1")
    assert line.asked_for(Say)[0].conversation == "c1"


def test_a_thread_is_a_conversation_where_there_is_no_other() -> None:
    line = connect("")
    ask(line, thread_id="t1")
    ask(line, message_id="m2", thread_id="default")
    assert [say.conversation for say in line.asked_for(Say)] == ["t1", "new-1"]


def test_a_session_has_a_conversation_of_its_own() -> None:
    names = set()
    for session in ("s1", "s1", "s2"):
        line = Line(AgentIQ, {"session": session})
        line.open()
        ask(line)
        [name] = {enter.conversation for enter in line.asked_for(Enter)}
        assert session not in line.reply("hi")[0]["conversation_id"]
        names.add(name)
    assert len(names) == 2


def test_a_client_that_names_no_conversation_gets_one() -> None:
    line = connect("")
    ask(line)
    [frame, _] = line.reply("hi")
    assert frame["conversation_id"] == line.asked_for(Say)[0].conversation != ""
    assert {each["conversation_id"] for each in line.send("{")} == {frame["conversation_id"]}


def test_only_the_last_conversations_are_held() -> None:
    line = connect("")
    for number in range(40):
        assert ask(line, message_id=f"m{number}", conversation_id=f"c{number}") == []
    assert [each.conversation for each in line.asked_for(Leave)] == [f"c{n}" for n in range(8)]
    assert ask(line, message_id="again", conversation_id="c0") == []
    assert len(line.asked_for(Enter)) == 41


# A client that comes back


def test_a_client_that_comes_back_gets_the_open_prompt_again() -> None:
    turn = Turn(
        id="m1", agent=AGENT, author=Author("ann"), thread_id="t1", timestamp=NOW, text="Hm. "
    )
    prompt = Prompt(id="p1", turn="m1", input_type="text", text="Why?", seconds_left=11.2)
    entered = new_conversation("c1", is_new=False, turns=[turn], prompts=[prompt])
    line = connect(entered=[entered])
    text, interaction = line.frames
    assert texts([text]) == ["Hm. "]
    assert interaction["content"]["timeout"] == 12
    assert (interaction["parent_id"], interaction["thread_id"]) == ("m1", "t1")
    assert answer(line, "because") == []
    assert texts(line.reply("Hm. I see.")) == ["I see.", None]


def test_a_client_that_comes_back_gets_the_answer_that_it_has_missed() -> None:
    line = connect("")
    entries = [
        line.entry("my own", author=Author("ann"), dialect="agentiq"),
        line.entry("and mine", author=DORA, dialect="stage"),
        line.entry("Hello", author=AGENT, kind=Kind.REPLY, turn="m1"),
        line.entry("broken", author=AGENT, kind=Kind.FAILURE, turn="m2"),
    ]
    line = connect(entered=[new_conversation("c1", is_new=False, entries=entries)])
    failed = ("The turn has failed", "while you were away")
    assert notes(line.frames) == [("Dora", "and mine"), failed]
    assert texts(line.frames) == ["Hello", None, None]
    assert errors(line.frames) == [("workflow_error", "while you were away")]
    assert [frame["parent_id"] for frame in line.frames] == ["root", "m1", "m1", "root", "m2", "m2"]


def test_what_a_client_has_missed_does_not_end_its_new_turn() -> None:
    """It comes back by saying something: its conversation is entered only now."""
    line = connect("")
    missed = [line.entry("Hello", author=AGENT, kind=Kind.REPLY, turn="m0")]
    prompt = Prompt(id="p1", turn="m1", input_type="text", text="Why?")
    entered = new_conversation("c1", entries=missed, turns=[NEW_TURN], prompts=[prompt])
    line = connect("", entered=[entered])
    frames = ask(line, message_id="m2", conversation_id="c1")
    assert (notes(frames), texts(frames)) == ([("Bob", "Hello")], [])
    assert texts(line.reply("hi")) == ["hi", None]


def waiting() -> Line:
    """Return a line of which the host waits for the first frame; an answer was missed."""
    missed = [Line(AgentIQ).entry("Hello", author=AGENT, kind=Kind.REPLY, turn="m0")]
    entered = [new_conversation("c1", is_new=False, entries=missed)]
    return Line(AgentIQ, {"conversation_id": "c1"}, entered=entered)


def test_a_client_that_comes_back_to_say_something_is_not_told_of_another_end() -> None:
    """The toolkit's web UI would take it for the end of what it has said."""
    line = waiting()
    frames = ask(line, message_id="m1", conversation_id="c1")
    assert (notes(frames), texts(frames)) == ([("Bob", "Hello")], [])
    assert line.open() == []
    assert texts(line.reply("hi")) == ["hi", None]


@pytest.mark.parametrize("frame", ["{", '{"type": "user_message"}', '{"type": "what"}'])
def test_what_was_missed_comes_before_the_answer_to_any_other_first_frame(frame: str) -> None:
    line = waiting()
    assert texts(line.send(frame))[:2] == ["Hello", None]
    assert line.open() == []


# Others in the same conversation


def foreign(line: Line) -> tuple[Turn, list[Frame]]:
    """Let somebody else begin a turn; return it and the frames until its first word."""
    entry = line.entry("Is it late?", author=DORA, dialect="group")
    turn = Turn(id=entry.id, agent=AGENT, author=DORA, timestamp=NOW)
    said = Said("c1", entry, is_own=False)
    return turn, line.show(said, TurnBegan("c1", turn, is_own=False))


def finish(line: Line, turn: Turn) -> list[Frame]:
    reply = line.entry("No.", author=AGENT, kind=Kind.REPLY, turn=turn.id)
    replied = Replied("c1", turn, reply, is_own=False)
    return line.show(replied, TurnEnded("c1", turn, TurnEnd.REPLIED, is_own=False))


def test_somebody_elses_turn_is_shown_like_an_own_one() -> None:
    line = connect()
    turn, frames = foreign(line)
    assert texts(frames) == ["Dora: Is it late?\n\n"]
    frames += finish(line, turn)
    assert texts(frames) == ["Dora: Is it late?\n\n", "No.", None]
    assert {frame["parent_id"] for frame in frames} == {turn.id}
    assert frames[0]["author"] == {"id": "dora", "type": "user", "name": "Dora"}


def test_somebody_elses_turn_beside_an_own_one_is_shown_as_notes() -> None:
    line = connect()
    ask(line)
    turn, frames = foreign(line)
    frames += finish(line, turn)
    assert notes(frames) == [("Dora", "Is it late?"), ("Bob", "No.")]
    assert len(frames) == 2
    assert texts(line.reply("hi")) == ["hi", None]


def test_somebody_elses_failure_beside_an_own_turn_is_a_note() -> None:
    line = connect()
    ask(line)
    turn, _ = foreign(line)
    entry = line.entry("it broke", author=AGENT, kind=Kind.FAILURE, turn=turn.id)
    failed = TurnFailed("c1", turn, "x", "it broke", None, "error", True, entry, is_own=False)
    frames = line.show(failed, TurnEnded("c1", turn, TurnEnd.FAILED, is_own=False))
    assert (notes(frames), len(frames)) == ([("Bob", "it broke")], 1)


def test_words_without_a_text_are_not_shown() -> None:
    line = connect()
    assert line.show(Said("c1", line.entry("", author=DORA), is_own=False)) == []


def test_events_of_a_conversation_that_was_left_are_not_shown() -> None:
    line = connect()
    assert line.show(Said("c9", line.entry("hi", author=DORA), is_own=False)) == []


def test_a_prompt_is_put_to_its_user_only() -> None:
    line = connect()
    turn, _ = foreign(line)
    prompt = Prompt(id="p9", turn=turn.id, input_type="text", text="Why?")
    assert notes(line.show(Prompted("c1", turn, prompt, is_own=False))) == [("Bob", "Why?")]
    [(code, _)] = errors(answer(line, "because", parent=turn.id))
    assert code == "invalid_message"


def test_a_prompt_is_put_to_its_user_at_every_client() -> None:
    line = connect()
    turn = Turn(id="elsewhere", agent=AGENT, author=Author("ann"), timestamp=NOW)
    prompt = Prompt(id="p9", turn=turn.id, input_type="text", text="Why?")
    line.prompts["p9"] = "c1", prompt
    [frame] = line.show(Prompted("c1", turn, prompt, is_own=False))
    assert frame["type"] == "system_interaction_message"
    closed = PromptClosed("c1", prompt, PromptEnd.ANSWERED, is_own=False)
    assert line.show(closed) == []


def test_words_of_an_agent_without_a_turn_are_an_answer_of_their_own() -> None:
    line = connect()
    entry = line.entry("The tide turns.", author=AGENT, kind=Kind.REPLY)
    assert texts(line.show(Replied("c1", None, entry, is_own=False))) == ["The tide turns.", None]
    ask(line)
    assert notes(line.show(Replied("c1", None, entry, is_own=False))) == [
        ("Bob", "The tide turns.")
    ]


def test_a_task_is_a_note_that_replaces_the_one_before() -> None:
    line = connect()
    task = Task(task_id="t1", title="Dishes", status="in_progress", progress=50)
    changed = TaskChanged("c1", task, "updated", DORA, is_own=False)
    [frame] = line.show(changed)
    assert (frame["id"], notes([frame])) == ("t1", [("Dishes", "in_progress, 50 %")])


def test_an_agent_that_becomes_known_during_its_turn_has_one_answer() -> None:
    line = connect()
    unnamed = Turn(id="m1", agent=Author("", "agent"), author=Author("ann"), timestamp=NOW)
    line.turns["c1"] = unnamed
    line.show(TurnBegan("c1", unnamed, is_own=True))
    line.delta("a")
    line.turns["c1"] = replace(unnamed, agent=AGENT)
    line.delta("b")
    assert texts(line.reply("abc")) == ["c", None]
