"""The questions of agents: shown as system messages, answered by the user's next text."""

from __future__ import annotations

from typing import Any

import pytest

from busd.gateway import (
    Answer,
    InputType,
    Option,
    Prompt,
    PromptClosed,
    Prompted,
    PromptEnd,
    Say,
    TurnBegan,
)
from tests.gateway.tkr.client import NOW, Client, a_turn, an_entered, refusing
from tests.gateway.tkr.original import Packet, shown_by_the_original

OPTIONS = (
    Option("o1", "Ulm, Germany", "ulm"),
    Option("o2", "Ulm, Montana", "montana", "a small place"),
)


def a_prompt(
    prompt_id: str = "p1", kind: InputType = "radio", options: tuple[Option, ...] = OPTIONS
) -> Prompt:
    return Prompt(
        id=prompt_id,
        turn="msg_1",
        input_type=kind,
        text="Which Ulm?",
        options=options,
        placeholder="pick one",
        timestamp=NOW,
        seconds_left=30.0,
    )


def asked(prompt: Prompt | None = None, agent: str = "phil") -> Client:
    """Return a client that was asked a question."""
    client = Client(session_id="s1")
    client.show(TurnBegan("s1", a_turn(agent), True))
    client.show(Prompted("s1", a_turn(agent), prompt or a_prompt(), True))
    client.requests.clear()
    return client


def answer(client: Client, content: Any, **message: Any) -> Answer:
    """Say something that is an answer."""
    client.say(id="m2", session_id="s1", type="text", content=content, **message)
    found: Answer = client.requested(Answer)
    return found


def test_a_question_is_a_system_message_with_its_options() -> None:
    [_, frame] = Client(session_id="s1").messages(Prompted("s1", a_turn(), a_prompt(), True))
    assert (frame["type"], frame["id"], frame["content"]) == ("system", "p1", "Which Ulm?")
    assert frame["in_reply_to"] == "msg_1"
    assert frame["from_agent"] == "phil"
    assert frame["metadata"] == {
        "prompt_id": "p1",
        "input_type": "radio",
        "options": [
            {"id": "o1", "label": "Ulm, Germany", "value": "ulm"},
            {
                "id": "o2",
                "label": "Ulm, Montana",
                "value": "montana",
                "description": "a small place",
            },
        ],
        "required": True,
        "placeholder": "pick one",
        "timeout_seconds": 30.0,
    }


def test_the_original_shows_a_question_with_its_options() -> None:
    frame = Client(session_id="s1").messages(Prompted("s1", a_turn(), a_prompt(), True))[-1]
    text = "Which Ulm? (pick one)\n1. Ulm, Germany\n2. Ulm, Montana"
    assert shown_by_the_original(frame) == Packet("phil", text, True)


@pytest.mark.parametrize("kind", ["text", "binary_choice", "radio", "checkbox", "dropdown"])
def test_the_next_text_answers_a_question_of_every_kind(kind: InputType) -> None:
    found = answer(asked(a_prompt(kind=kind)), "Ulm, Germany")
    assert (found.conversation, found.prompt_id, found.values) == ("s1", "p1", ("ulm",))
    assert (found.entry.text, found.entry.id, found.entry.prompt_id) == ("Ulm, Germany", "m2", "p1")


@pytest.mark.parametrize("said", ["montana", "Ulm, Montana", "o2", "2", " MONTANA "])
def test_an_option_is_named_by_value_label_id_or_number(said: str) -> None:
    assert answer(asked(), said).values == ("montana",)


def test_any_text_answers_a_question_without_options() -> None:
    found = answer(asked(a_prompt(kind="text", options=())), "the one on the Danube")
    assert found.values == ("the one on the Danube",)


@pytest.mark.parametrize("said", ["ulm, 2", "1\n2", "o1; montana", ["ulm", "montana"]])
def test_several_options_of_a_checkbox_are_named_at_once(said: Any) -> None:
    assert answer(asked(a_prompt(kind="checkbox")), said).values == ("ulm", "montana")


def test_an_answer_is_acknowledged_like_any_text() -> None:
    ack = asked().say(id="m2", session_id="s1", type="text", content="ulm")
    assert ack == {"status": "delivered", "id": "m2", "persistedId": "m2", "timestamp": NOW}


def test_a_text_to_the_asking_agent_is_an_answer_and_one_to_another_is_not() -> None:
    client = asked()
    client.say(session_id="s1", content="hello", to_agent="rita")
    assert client.requested(Say).agents == ("rita",)
    assert answer(client, "ulm", to_agent="phil").prompt_id == "p1"


def test_a_text_in_another_session_is_no_answer() -> None:
    client = asked()
    client.say(session_id="s2", content="ulm")
    assert client.requested(Say).conversation == "s2"


def test_what_an_agent_says_is_no_answer() -> None:
    client = asked()
    client.say(session_id="s1", content="ulm", from_agent="rita", to_agent="phil")
    assert client.requested(Say).agents == ("phil",)


@pytest.mark.parametrize(
    "naming", [{"in_reply_to": "p1"}, {"metadata": {"prompt_id": "p1"}}, {"prompt_id": "p1"}]
)
def test_an_answer_may_name_its_question(naming: dict[str, Any]) -> None:
    client = asked()
    client.show(Prompted("s1", a_turn("rita"), a_prompt("p2"), True))
    assert answer(client, "ulm", to_agent="rita", **naming).prompt_id == "p1"


def test_a_text_that_names_none_answers_the_latest_question() -> None:
    client = asked()
    client.show(Prompted("s1", a_turn("rita"), a_prompt("p2"), True))
    assert answer(client, "ulm").prompt_id == "p2"


def test_an_answer_to_an_unknown_question_is_put_to_the_gateway_and_refused() -> None:
    client = Client(
        session_id="s1", refuse=refusing("prompt", Answer, "no such prompt", detail="prompt_id")
    )
    client.requests.clear()
    ack = client.say(id="m2", session_id="s1", content="ulm", metadata={"prompt_id": "p9"})
    assert (ack["status"], ack["message"]) == ("error", "no such prompt")
    error = client.error()
    assert error["error_code"] == "socket.message.validation"
    assert error["details"]["field"] == "prompt_id"
    assert client.requested(Answer).values == ("ulm",)


def test_an_option_that_does_not_exist_is_put_to_the_gateway_and_refused() -> None:
    client = asked(a_prompt(kind="checkbox"))
    client.refuse = refusing("option", Answer, "no option paris", detail="paris")
    ack = client.say(id="m2", session_id="s1", content="ulm, paris")
    assert ack["status"] == "error"
    assert client.error()["details"]["rule"] == "option"
    assert client.requested(Answer).values == ("ulm", "paris")
    client.refuse = None
    assert answer(client, "ulm").prompt_id == "p1"


@pytest.mark.parametrize("how", list(PromptEnd))
def test_a_question_that_is_closed_is_not_answered(how: PromptEnd) -> None:
    client = asked()
    client.show(PromptClosed("s1", a_prompt(), how, True))
    client.say(session_id="s1", content="ulm")
    assert client.requested(Say).entry.text == "ulm"


def test_that_nobody_has_answered_in_time_is_shown() -> None:
    [frame] = asked().messages(PromptClosed("s1", a_prompt(), PromptEnd.TIMED_OUT, True))
    assert (frame["type"], frame["severity"]) == ("system", "warning")
    assert frame["metadata"] == {"prompt_id": "p1", "closed": "timed_out"}


def test_a_notification_wants_no_answer() -> None:
    client = asked(a_prompt(kind="notification", options=()))
    client.say(session_id="s1", content="thank you")
    assert client.requested(Say).entry.text == "thank you"


def test_an_open_question_is_shown_again_to_a_client_that_comes_back() -> None:
    entered = an_entered(turns=[a_turn()], prompts=[a_prompt()])
    client = Client(session_id="s1", entered=entered)
    frame = client.opened_with[-1][1]
    assert (frame["id"], frame["from_agent"]) == ("p1", "phil")
    assert frame["metadata"]["timeout_seconds"] == 30.0
    client.requests.clear()
    assert answer(client, "ulm", to_agent="phil").prompt_id == "p1"


def test_a_question_is_forgotten_with_its_session() -> None:
    client = asked()
    client.send("leave", {"type": "session", "id": "s1"})
    client.requests.clear()
    client.say(session_id="s1", content="ulm")
    assert client.requested(Say).entry.text == "ulm"


def test_so_many_questions_are_remembered() -> None:
    client = asked()
    for number in range(1000):
        client.show(Prompted("s1", a_turn(), a_prompt(f"q{number}"), True))
    assert len(client.dialect.showing.prompts._open) == 256
    assert answer(client, "ulm").prompt_id == "q999"
