"""Prompts: an agent asks, and one answer closes the prompt."""

from __future__ import annotations

from typing import Any

import pytest

from busd.gateway.conversation import Entry, PromptEnd, TurnEnd
from busd.gateway.effects import Answer, Cancel, Say
from busd.gateway.events import (
    PromptClosed,
    Prompted,
    Replied,
    Said,
    TurnBegan,
    TurnEnded,
    TurnFailed,
)
from busd.testing.gateway import GatewayAgent, GatewayKit, Words
from tests.gateway.hub.probe import LOBBY, Other, ProbeClient, join

pytestmark = pytest.mark.anyio

COLOURS: dict[str, Any] = {
    "id": "p1",
    "text": "Which?",
    "input_type": "radio",
    "options": [
        {"id": "r", "label": "Red", "value": "red"},
        {"id": "b", "label": "Blue", "value": "blue"},
    ],
}


async def asked(kit: GatewayKit, **prompt: Any) -> tuple[ProbeClient, GatewayAgent, Words]:
    """Return a client that was asked, the agent, and the words that it is about."""
    bob = kit.agent("bob")
    ann = await join(kit)
    await ann.enter()
    await ann.say("paint it")
    await kit.settle()
    words = bob.words()
    words.tell("turn.prompt", **(prompt or COLOURS))
    await kit.settle()
    return ann, bob, words


async def test_the_answer_goes_to_the_agent_with_the_id_of_the_prompt(kit: GatewayKit) -> None:
    ann, bob, _ = await asked(kit)
    prompt = ann.last(Prompted).prompt
    assert (prompt.id, prompt.input_type, prompt.required) == ("p1", "radio", True)
    assert [each.value for each in prompt.options] == ["red", "blue"]
    ann.take()
    await ann.answer("p1", "red")
    await kit.settle()
    assert ann.last(PromptClosed).how is PromptEnd.ANSWERED
    assert ann.seen() == ["Done", "Said", "PromptClosed"]
    answer = bob.words()
    assert (answer.text, answer.content["prompt_id"]) == ("red", "p1")


async def test_words_with_the_id_of_a_prompt_answer_it(kit: GatewayKit) -> None:
    ann, bob, _ = await asked(kit)
    await ann.must(Say(LOBBY, Entry(text="blue", prompt_id="p1")))
    await kit.settle()
    assert bob.words().content["prompt_id"] == "p1"
    assert len(ann.all(TurnBegan)) == 1


async def test_a_second_answer_is_refused(kit: GatewayKit) -> None:
    ann, bob, _ = await asked(kit)
    eve = await join(kit, dialect=Other)
    assert [each.id for each in (await eve.enter()).prompts] == ["p1"]
    await ann.answer("p1", "red")
    refused = await eve.refused(Answer(LOBBY, "p1", ("blue",), Entry(text="blue")))
    assert (refused.rule, refused.detail) == ("prompt", "p1")
    await kit.settle()
    assert bob.words().text == "red"
    assert not bob.peer.inbox
    assert eve.last(PromptClosed).how is PromptEnd.ANSWERED


async def test_the_same_answer_sent_twice_is_a_duplicate(kit: GatewayKit) -> None:
    ann, _, _ = await asked(kit)
    for is_duplicate in (False, True):
        done = await ann.must(Answer(LOBBY, "p1", ("red",), Entry(text="red", id="a1")))
        assert done.is_duplicate == is_duplicate
    assert len(ann.all(Said)) == 2


async def test_an_answer_to_another_conversations_prompt_is_refused(kit: GatewayKit) -> None:
    ann, _, _ = await asked(kit)
    eve = await join(kit, user="eve")
    await eve.enter()
    assert (await eve.answer("p1", "red")).rule == "prompt"  # type: ignore[union-attr]
    await ann.enter("another")
    assert (await ann.answer("p1", "red", name="another")).rule == "prompt"  # type: ignore[union-attr]
    assert not ann.all(PromptClosed)


@pytest.mark.parametrize(
    ("values", "detail"),
    [(("green",), "green"), (("red", "blue"), "blue"), (("",), ""), ((), "")],
)
async def test_an_answer_that_does_not_fit_is_refused_and_the_prompt_stays_open(
    kit: GatewayKit, values: tuple[str, ...], detail: str
) -> None:
    ann, _, _ = await asked(kit)
    refused = await ann.answer("p1", *values)
    assert (refused.rule, refused.detail) == ("option", detail)  # type: ignore[union-attr]
    await ann.answer("p1", "red")
    assert ann.last(PromptClosed).how is PromptEnd.ANSWERED


@pytest.mark.parametrize("value", ["red", "r", "Red", "RED "])
async def test_an_option_is_found_by_its_value_its_id_or_its_label(
    kit: GatewayKit, value: str
) -> None:
    ann, bob, _ = await asked(kit)
    await ann.answer("p1", value)
    await kit.settle()
    assert bob.words().text == "red"


async def test_several_options_of_a_checkbox_are_lines(kit: GatewayKit) -> None:
    ann, bob, _ = await asked(kit, **COLOURS | {"input_type": "checkbox"})
    await ann.answer("p1", "red", "blue", "red")
    await kit.settle()
    assert bob.words().text == "red\nblue"


async def test_an_optional_prompt_may_be_left_without_an_answer(kit: GatewayKit) -> None:
    ann, bob, _ = await asked(kit, **COLOURS | {"required": False})
    await ann.answer("p1")
    await kit.settle()
    assert bob.words().text == ""


async def test_options_may_be_plain_texts_and_the_type_may_be_missing(kit: GatewayKit) -> None:
    ann, _, _ = await asked(kit, id=7, text="Sure?", options=["yes", "no"])
    prompt = ann.last(Prompted).prompt
    assert (prompt.id, prompt.input_type) == ("7", "radio")
    assert [(each.id, each.label, each.value) for each in prompt.options] == [
        ("1", "yes", "yes"),
        ("2", "no", "no"),
    ]


async def test_the_plain_text_of_a_prompt_is_not_shown_beside_it(kit: GatewayKit) -> None:
    ann, _, words = await asked(kit)
    ann.take()
    words.reply("Which?\n 1. Red\n 2. Blue", prompt_id="p1")
    await kit.settle()
    assert ann.events == []


async def test_the_plain_text_stands_for_a_prompt_that_was_missed(kit: GatewayKit) -> None:
    bob = kit.agent("bob")
    ann = await join(kit)
    await ann.enter()
    await ann.say("paint it")
    await kit.settle()
    bob.words().reply("Which? Red or blue", prompt_id="p9")
    await kit.settle()
    assert (ann.last(Prompted).prompt.id, ann.last(Prompted).prompt.input_type) == ("p9", "text")
    await ann.answer("p9", "red")
    await kit.settle()
    assert bob.words().content["prompt_id"] == "p9"


async def test_a_prompt_closes_with_its_turn(kit: GatewayKit) -> None:
    ann, _, words = await asked(kit)
    ann.take()
    words.reply("never mind")
    await kit.settle()
    assert ann.last(PromptClosed).how is PromptEnd.TURN_ENDED
    assert ann.seen() == ["PromptClosed", "Replied", "TurnEnded"]
    assert (await ann.answer("p1", "red")).rule == "prompt"  # type: ignore[union-attr]


async def test_a_prompt_closes_with_a_turn_that_is_cancelled(kit: GatewayKit) -> None:
    ann, _, _ = await asked(kit)
    ann.take()
    await ann.must(Cancel(LOBBY))
    assert ann.seen() == ["PromptClosed", "TurnEnded", "Done"]


async def test_an_agent_may_ask_the_same_question_again(kit: GatewayKit) -> None:
    """A worker that died asks again; so does one that did not understand a plain answer."""
    ann, bob, words = await asked(kit)
    await ann.answer("p1", "red")
    await kit.settle()
    bob.words()
    words.tell("turn.prompt", **COLOURS)
    await kit.settle()
    assert len(ann.all(Prompted)) == 2
    await ann.answer("p1", "blue")
    await kit.settle()
    assert bob.words().text == "blue"


@pytest.mark.parametrize("is_restarted", [True, False], ids=["restart", "lost line"])
async def test_an_answered_question_is_put_again_if_it_was_asked_again_while_nobody_listened(
    kit: GatewayKit, is_restarted: bool
) -> None:
    """An agent begins its turn anew; the prompt itself is lost, and its plain text is kept."""
    ann, bob, words = await asked(kit)
    await ann.answer("p1", "red")
    await kit.settle()
    bob.words()
    words.reply("Which? red or blue", message_id="p1.reply", prompt_id="p1")
    await kit.settle()
    assert len(ann.all(Prompted)) == 1
    if is_restarted:
        await kit.restart()
        ann = await join(kit)
        await ann.enter()
    else:
        kit.line.lose()
        kit.line.restore()
        await kit.settle()
    ann.take()
    for _ in range(2):
        words.reply("Which? red or blue", message_id="p1.reply", prompt_id="p1")
        await kit.settle()
    assert ann.seen() == ["Prompted"]
    await ann.answer("p1", "blue")
    await kit.settle()
    answer = bob.words()
    assert (answer.text, answer.content["prompt_id"]) == ("blue", "p1")


async def test_a_prompt_by_the_id_of_another_turns_is_refused(kit: GatewayKit) -> None:
    ann, bob, words = await asked(kit)
    await ann.say("and that")
    await kit.settle()
    second = bob.words()
    content = {"event": "turn.prompt", "data": {"turn": second.id, **COLOURS}}
    payload = {"type": "agent_event", "content": content}
    sent = bob.peer.send(f"events:{words.chat}", payload)
    await kit.settle()
    assert "p1" in sent.result.acks[0].message
    assert len(ann.all(Prompted)) == 1


# Time


async def test_a_prompt_times_out_and_the_agent_fails_the_turn(kit: GatewayKit) -> None:
    ann, _, words = await asked(kit, **COLOURS | {"timeout_seconds": 30})
    assert ann.last(Prompted).prompt.seconds_left == 30
    ann.take()
    await kit.advance(31)
    assert ann.last(PromptClosed).how is PromptEnd.TIMED_OUT
    assert ann.seen() == ["PromptClosed"]
    assert (await ann.answer("p1", "red")).rule == "prompt"  # type: ignore[union-attr]
    ann.take()
    words.tell("turn.error", code="prompt_timeout", message="nobody answered")
    words.reply("Sorry, that failed: nobody answered")
    await kit.settle()
    assert ann.seen() == ["TurnFailed", "TurnEnded"]


async def test_a_turn_whose_prompt_has_timed_out_fails_if_its_agent_is_silent(
    kit: GatewayKit,
) -> None:
    ann, bob, words = await asked(kit, **COLOURS | {"timeout_seconds": 30})
    await kit.advance(31)
    await kit.advance(4)
    assert not ann.all(TurnFailed)
    await kit.advance(2)
    assert ann.last(TurnFailed).code == "prompt_timeout"
    assert ann.last(TurnEnded).how is TurnEnd.FAILED
    assert bob.event()["event"] == "turn.cancel"
    words.reply("Sorry, that failed")
    await kit.settle()
    assert not ann.all(Replied)


async def test_an_agent_that_goes_on_after_the_time_out_may_do_so(kit: GatewayKit) -> None:
    ann, _, words = await asked(kit, **COLOURS | {"timeout_seconds": 30})
    await kit.advance(31)
    words.tell("turn.delta", text="I take red")
    await kit.advance(100)
    words.reply("It is red")
    await kit.settle()
    assert ann.last(TurnEnded).how is TurnEnd.REPLIED


async def test_no_time_is_up_for_the_agent_while_the_user_thinks(kit: GatewayKit) -> None:
    ann, bob, words = await asked(kit)
    await kit.advance(100_000)
    await ann.answer("p1", "red")
    await kit.settle()
    bob.words()
    words.reply("It is red")
    await kit.settle()
    assert ann.last(TurnEnded).how is TurnEnd.REPLIED


async def test_a_prompt_outlives_its_client_and_has_the_time_that_is_left(kit: GatewayKit) -> None:
    ann, bob, _ = await asked(kit, **COLOURS | {"timeout_seconds": 30})
    await ann.leave()
    await kit.advance(10)
    again = await join(kit)
    entered = await again.enter()
    assert [each.seconds_left for each in entered.prompts] == [20]
    assert [each.id for each in entered.turns] == [entered.prompts[0].turn]
    await again.answer("p1", "red")
    await kit.settle()
    assert bob.words().text == "red"
